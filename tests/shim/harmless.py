"""Training jobs in miniature, run with and without the shim by ``test_harmless.py``.

Run as ``python harmless.py CASE RANK WORLD STORE_FILE RESULT_FILE``: trains CASE for a few steps and writes
losses, parameters and what else must not change (graph count, warnings) to RESULT_FILE. The shim, if any,
comes in from outside, through the injection.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

STEPS = 3


class Block(nn.Module):
    """Its output is changed in place by its caller: what backward hooks on modules break."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self, recompute: str = "") -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(16, 1)
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, use_reentrant=self.recompute == "reentrant")
            else:
                x = layer(x)
            x.relu_()
        return self.head(x)


def train(model: nn.Module, found: dict[str, Any], scaler: Any = None, step: Any = None) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(7 + dist.get_rank())
    data = torch.utils.data.TensorDataset(torch.randn(STEPS * 4, 8), torch.randn(STEPS * 4, 1))
    losses = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        loss = step(model, x, y) if step else (model(x) - y).square().mean()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.detach().clone())
        dist.all_reduce(losses[-1])
    found["losses"] = [float(loss).hex() for loss in losses]
    found["parameters"] = [_bits(parameter) for parameter in model.parameters()]


def _bits(parameter: torch.Tensor) -> list[int]:
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # type: ignore[operator]
    return local.detach().reshape(-1).view(torch.int32).tolist()  # type: ignore[no-any-return]


def ddp(found: dict[str, Any], recompute: str = "", scaler: Any = None) -> None:
    train(DistributedDataParallel(Net(recompute)), found, scaler)


def fsdp2(found: dict[str, Any]) -> None:
    from torch.distributed.fsdp import fully_shard

    model = Net()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    train(model, found)


def compiled_ddp(found: dict[str, Any]) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    model = torch.compile(DistributedDataParallel(Net()), backend=counter)
    train(model, found)
    found["graphs"] = counter.frame_count


def compiled_full(found: dict[str, Any]) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    inner = Net()

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (model(x) - y).square().mean()

    compiled = torch.compile(step, backend=counter, fullgraph=True)
    train(inner, found, step=compiled)
    found["graphs"] = counter.frame_count


def compiled_collective(found: dict[str, Any]) -> None:
    """A public collective inside a full graph: dynamo maps it to a functional one by its identity."""
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()

    def reduce(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    out = torch.compile(reduce, backend=counter, fullgraph=True)(torch.ones(4))
    found["graphs"] = counter.frame_count
    found["losses"] = out.tolist()


CASES: dict[str, Callable[[dict[str, Any]], None]] = {
    "ddp": ddp,
    "ddp-checkpoint": lambda found: ddp(found, "plain"),
    "ddp-reentrant": lambda found: ddp(found, "reentrant"),
    "ddp-scaler": lambda found: ddp(found, scaler=torch.amp.GradScaler("cpu", init_scale=4.0)),
    "fsdp2": fsdp2,
    "compiled-ddp": compiled_ddp,
    "compiled-full": compiled_full,
    "compiled-collective": compiled_collective,
}


def main(cases: str, rank: str, world: str, store: str, result: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, int(world)), rank=int(rank), world_size=int(world)
    )
    results: dict[str, Any] = {}
    for case in cases.split(","):
        found: dict[str, Any] = {}
        torch.manual_seed(1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CASES[case](found)
        found["warnings"] = sorted(f"{w.category.__name__}: {w.message}" for w in caught)
        results[case] = found
    results["attached"] = _attached()
    Path(result).write_text(json.dumps(results))
    dist.destroy_process_group()


def _attached() -> dict[str, Any]:
    """What the shim says of itself, empty where there is none."""
    module = sys.modules.get("scoutd.shim")
    return module.status() if module is not None else {}


if __name__ == "__main__":
    main(*sys.argv[1:])
