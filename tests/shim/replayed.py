"""Training jobs in miniature, each run twice on four ranks by ``test_replay.py``: plain, then replayed.

Run as ``python replayed.py FOLDER CASES``: imports torch once and forks the ranks. Every case is trained
without scoutd and then, in the same processes and from the same seeds, with every recipe replayed after every
step; some are trained longer, and with rank 0's real inputs replayed as well. Each rank writes to
``FOLDER/<rank>.json`` what the runs gave, what was replayed, and how many collectives each took.
"""

from __future__ import annotations

import gc
import hashlib
import json
import mmap
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import scoutd.shim
from scoutd.proto import shm
from scoutd.shim import session
from scoutd.shim.replay.recipes import NO_TEMPLATE

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.shim.meeting import Meeting

WORLD = 4
STEPS = 4
BROADCAST_STEPS = 8
"""Steps 1 and 3 are replayed from seeds, step 2 (sharded: 4) is captured, and replayed four steps later."""

BATCH = 6
DEADLINE_S = 30.0
REQUEST = 77
ALONE = "fsdp2"
"""This case is also trained with replays on rank 0 alone."""

BROADCAST = ("ddp-amp", "ddp-reentrant", "fsdp2-mixed", "hsdp")
"""These are also trained with broadcasts."""

meetings: list[Meeting] = []


class Block(nn.Module):
    """Draws random numbers, keeps running statistics, takes a mask, and counts its calls on itself."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.norm = norm(16)
        self.linear = nn.Linear(16, 16)
        self.dropout = nn.Dropout(0.25)
        self.calls = 0

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        self.calls += 1
        y = self.dropout(torch.relu(self.linear(self.norm(x))))
        if random.random() < 0.5:
            y = y * 1.5
        return x + (y if mask is None else y.masked_fill(mask, 0.0))


class Net(nn.Module):
    def __init__(self, recompute: str = "", norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList([Block(norm) for _ in range(3)])
        self.head = nn.Linear(16, 8)
        self.recompute = recompute

    def forward(self, ids: torch.Tensor, width: int = 16) -> torch.Tensor:
        x = self.embed(ids)
        mask = torch.arange(width, device=ids.device) % 5 == 0
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, mask, use_reentrant=self.recompute == "reentrant")
            else:
                x = block(x, mask=mask)
        return self.head(x)  # type: ignore[no-any-return]


class Hooked:
    """The user's own hooks, which count."""

    def __init__(self, model: nn.Module) -> None:
        self.calls = {"pre": 0, "post": 0, "grad": 0, "step": 0}
        for module in model.modules():
            module.register_forward_pre_hook(lambda *_: self._count("pre"))
            module.register_forward_hook(lambda *_: self._count("post"))
        for parameter in model.parameters():
            parameter.register_hook(lambda _: self._count("grad"))

    def _count(self, name: str) -> None:
        self.calls[name] += 1

    def of(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.register_step_post_hook(lambda *_: self._count("step"))


def train(
    model: nn.Module,
    hooked: Hooked,
    found: dict[str, Any],
    *,
    scaler: Any = None,
    autocast: bool = False,
    micro: int = 1,
    optimizer_class: Any = torch.optim.AdamW,
) -> None:
    torch.manual_seed(7 + dist.get_rank())
    random.seed(3)
    optimizer = optimizer_class(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    hooked.of(optimizer)
    losses = []
    for _ in range(BROADCAST_STEPS if meetings else STEPS):
        optimizer.zero_grad()
        for part in range(micro):
            loss = _loss(model, autocast, last=part == micro - 1)
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        wait_for_templates()
        for meeting in meetings:
            meeting.after_step()
        losses.append(loss.detach().float().item().hex())
    found["losses"] = losses
    found["parameters"] = _digest(list(model.parameters()))
    found["buffers"] = _digest(list(model.buffers()))
    found["gradients"] = _digest([p.grad for p in model.parameters() if p.grad is not None])
    found["optimizer"] = _digest([v for p in model.parameters() for v in _values(optimizer.state[p])])
    found["rng"] = _digest([torch.get_rng_state()]) + repr(random.random())
    found["hooks"] = dict(hooked.calls)
    found["objects"] = _objects(model)


def wait_for_templates() -> None:
    """Rank 0's calls have come: the masks of the blocks are known from the second step on."""
    deadline = time.monotonic() + DEADLINE_S
    replays = session._session.replays if session._session is not None else None
    while replays is not None and dist.get_rank() and time.monotonic() < deadline:
        if replays.templates or all(each.reason != NO_TEMPLATE for each in replays.roster.recipes):
            return
        time.sleep(0.005)


def _loss(model: nn.Module, autocast: bool, last: bool) -> torch.Tensor:
    ids = torch.randint(0, 50, (BATCH, 5))[:, 0]
    if isinstance(model, DistributedDataParallel):
        model.require_backward_grad_sync = last
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        return model(ids).float().square().mean()  # type: ignore[no-any-return]


def _values(state: dict[str, Any]) -> list[Any]:
    return [state[name] for name in sorted(state) if isinstance(state[name], torch.Tensor)]


def _digest(tensors: list[Any]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        digest.update(local.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _objects(model: nn.Module) -> list[Any]:
    """Every module's attributes: names, and values of what is plain. Hooks are looked at after detach."""
    found = []
    for path, module in model.named_modules():
        plain = {
            str(name): value
            for name, value in vars(module).items()
            if isinstance(value, (bool, int, float, str))
        }
        found.append([path, sorted(map(str, vars(module))), plain])
    return found


def _tables(model: nn.Module) -> list[Any]:
    """How many entries each dictionary of each module has: hooks among them."""
    return [
        [
            path,
            sorted(
                (str(name), len(value)) for name, value in vars(module).items() if isinstance(value, dict)
            ),
        ]
        for path, module in model.named_modules()
    ]


def _ddp(recompute: str = "", **options: Any) -> Callable[[dict[str, Any]], nn.Module]:
    def case(found: dict[str, Any]) -> nn.Module:
        inner = Net(recompute)
        hooked = Hooked(inner)
        model = DistributedDataParallel(inner)
        train(model, hooked, found, **options)
        return model

    return case


def _sharded(shape: tuple[int, ...], names: tuple[str, ...], **options: Any) -> Callable[[Any], nn.Module]:
    def case(found: dict[str, Any]) -> nn.Module:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mixed = options.pop("mixed", False)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if mixed else MixedPrecisionPolicy()
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        model = Net(norm=nn.LayerNorm if mixed else nn.BatchNorm1d)  # the latter knows no mixed precision
        hooked = Hooked(model)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        train(model, hooked, found, **options)
        options["mixed"] = mixed
        return model

    return case


def _scaled(found: dict[str, Any]) -> nn.Module:
    return _ddp(scaler=torch.amp.GradScaler("cpu", init_scale=4.0), autocast=True)(found)


CASES: dict[str, Callable[[dict[str, Any]], nn.Module]] = {
    "ddp": _ddp(),
    "ddp-accumulation": _ddp(micro=3),
    "ddp-amp": _scaled,
    "ddp-checkpoint": _ddp("plain"),
    "ddp-reentrant": _ddp("reentrant"),
    "ddp-sgd": _ddp(optimizer_class=torch.optim.SGD),
    "fsdp2": _sharded((WORLD,), ("fsdp",)),
    "fsdp2-mixed": _sharded((WORLD,), ("fsdp",), mixed=True, micro=2),
    "hsdp": _sharded((2, 2), ("replicate", "shard")),
}


def run(case: str) -> dict[str, Any]:
    torch.manual_seed(1)
    found: dict[str, Any] = {}
    before = _collectives()
    model = CASES[case](found)
    found["collectives"] = _collectives() - before
    found["tables"] = _tables(model)
    return found


def run_replayed(case: str, every: int = 1, mode: str = "seeded") -> dict[str, Any]:
    """As ``run``, with everything replayed after every step (``every`` 1; 0: nothing)."""
    gc.collect()  # a model of an earlier case that still lives on some rank would be found there
    assert scoutd.shim.attach(replay_every=every, replay_variants=64, replay_mode=mode)
    torch.manual_seed(1)
    found: dict[str, Any] = {}
    before = _collectives()
    model = CASES[case](found)
    found["collectives"] = _collectives() - before
    status = scoutd.shim.status()
    data = Path(str(status["file"])).read_bytes()
    found["said"] = {
        "errors": status["errors"],
        "recipes": [list(each) for each in _slots(data, shm.RECIPES)],
        "replays": [list(each) for each in _slots(data, shm.REPLAYS)],
    }
    scoutd.shim.detach()
    found["tables"] = _tables(model)
    return found


def run_requested() -> dict[str, Any]:
    """Each rank is asked for a replay of everything, as by its agent, and trains until all have done it."""
    assert scoutd.shim.attach(replay_every=0)
    torch.manual_seed(1)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    path = Path(str(scoutd.shim.status()["file"]))
    deadline, pending = time.monotonic() + DEADLINE_S, True
    while pending:
        _loss(model, False, last=True).backward()
        optimizer.step()
        wait_for_templates()
        path = Path(str(scoutd.shim.status()["file"]))
        state = shm.read(path.read_bytes(), 0, shm.REPLAY, 0)
        if state is None or not state.request:
            _ask(path, REQUEST)
        waiting = torch.tensor([float(state is None or not state.request)])
        dist.all_reduce(waiting)
        pending = bool(waiting) and time.monotonic() < deadline
    data = path.read_bytes()
    scoutd.shim.detach()
    return {"replays": [list(each) for each in _slots(data, shm.REPLAYS)]}


def _ask(path: Path, request: int) -> None:
    """REQUEST of the rank's file says: all recipes, once, within the hour."""
    record = shm.Request(request, 0, time.monotonic_ns() + 3_600_000_000_000, 1)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        view = memoryview(mapped)
        words = view.cast("Q")
        shm.write(view, words, shm.REQUEST, 0, 1, record)
        words.release()
        view.release()


def _collectives() -> int:
    """How many this rank has entered in all groups."""
    return sum(int(group._get_sequence_number_for_group()) for group in list(c10d._world.pg_map))


def _slots(data: bytes, section: Any) -> list[Any]:
    found = (shm.read(data, 0, section, index) for index in range(section.slots))
    return [record for record in found if record is not None]


def rank_main(folder: Path, rank: int, port: int, cases: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ["SCOUTD_ROOT"] = str(folder / "scoutd")
    store = dist.TCPStore("127.0.0.1", port, WORLD, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    results = {case: {"plain": run(case), "replayed": run_replayed(case)} for case in cases}
    results["alone"] = {"plain": run(ALONE), "replayed": run_replayed(ALONE, every=int(rank == 0))}
    results["requested"] = run_requested()
    meetings.append(Meeting(folder, WORLD))
    results["broadcast"] = {
        case: {"plain": run(case), "replayed": run_replayed(case, mode="both")} for case in BROADCAST
    }
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def main(folder: str, cases: str) -> None:
    import torch._dynamo  # optimizers would import it in every rank
    import torch.distributed.fsdp  # noqa: F401

    gc.freeze()  # what is imported is not looked through again and again
    children = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for rank in range(WORLD):
        child = os.fork()
        if not child:
            code = 1
            try:
                rank_main(Path(folder), rank, port, cases.split(","))
                code = 0
            except BaseException:  # noqa: BLE001  told, and the exit code says so
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
