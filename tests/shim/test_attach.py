"""One rank, attached in this very process: what it publishes, and that detach leaves nothing."""

from __future__ import annotations

import gc
import io
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import _global_optimizer_pre_hooks

import scoutd.shim
from scoutd.proto import shm
from scoutd.proto.shm import CallKind, CallState, Phase
from scoutd.shim import session
from tests.unit.shim.reading import slot, slots


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job of one rank, not attached yet."""
    monkeypatch.setenv("SCOUTD_ROOT", str(tmp_path / "scoutd"))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    hook = sys.excepthook
    yield
    scoutd.shim.detach()
    dist.destroy_process_group()
    sys.excepthook = hook
    gc.collect()


@pytest.fixture
def attached() -> Path:
    assert scoutd.shim.attach(), scoutd.shim.status()
    return Path(str(scoutd.shim.status()["file"]))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)  # type: ignore[no-any-return]


def now(path: Path) -> tuple[Phase, str]:
    record = slot(path, shm.PROGRESS)
    assert record is not None
    return Phase(record.phase), record.operation


def watching(module: nn.Module, path: Path, seen: list[tuple[Phase, str]]) -> None:
    """What the file says while the module runs, forward and backward."""
    original = module.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(now(path))
        out: torch.Tensor = original(x)
        out.register_hook(lambda grad: seen.append(now(path)))
        return out

    module.forward = forward


def eventually(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_the_header_names_this_process_and_job(attached: Path) -> None:
    header = slot(attached, shm.HEADER)
    assert header is not None
    assert (header.pid, header.rank, header.world_size, header.uid) == (os.getpid(), 0, 1, os.getuid())
    assert header.backend == "gloo"
    assert header.torch == str(torch.__version__)
    assert attached.parts[-3:] == (header.job, str(header.generation), "rank-0")


def test_without_a_process_group_there_is_nothing_to_attach_to() -> None:
    dist.destroy_process_group()
    try:
        assert scoutd.shim.attach() is False
        assert "init_process_group" in str(scoutd.shim.status()["refused"])
    finally:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def test_an_unwritable_root_refuses_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SCOUTD_ROOT", str(tmp_path / "file" / "below"))
    assert scoutd.shim.attach() is False
    assert "NotADirectoryError" in str(scoutd.shim.status()["refused"])


def test_attaching_takes_less_than_half_a_second() -> None:
    started = time.perf_counter()
    scoutd.shim.attach()
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize("wrapped", [False, True])
def test_phases_and_modules_of_a_training_step(attached: Path, wrapped: bool) -> None:
    model = Net()
    trained: nn.Module = DistributedDataParallel(model) if wrapped else model
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    seen: list[tuple[Phase, str]] = []
    watching(model.layers[1], attached, seen)
    for _ in range(2):
        out = trained(torch.ones(2, 4)).sum()
        assert now(attached) == (Phase.BETWEEN, "after forward")
        out.backward()
        assert now(attached) == (Phase.BETWEEN, "after backward")
        optimizer.step()
        assert now(attached) == (Phase.BETWEEN, "after optimizer step")
    assert seen[0] == (Phase.FORWARD, "layers.1 (Block)")
    assert seen[1][0] == Phase.BACKWARD
    record = slot(attached, shm.PROGRESS)
    assert record is not None
    assert record.step == 2


def test_backward_names_the_block_that_is_about_to_run(attached: Path) -> None:
    model = Net()
    scoutd.shim.attach(model)
    x = torch.ones(2, 4, requires_grad=True)
    seen: list[tuple[Phase, str]] = []
    x.register_hook(lambda grad: seen.append(now(attached)))
    model(x).sum().backward()
    assert seen == [(Phase.BACKWARD, "layers.0 (Block)")]


def test_evaluation_is_a_phase_of_its_own(attached: Path) -> None:
    model = Net()
    scoutd.shim.attach(model)
    seen: list[tuple[Phase, str]] = []
    original = model.layers[0].forward
    model.layers[0].forward = lambda x: (seen.append(now(attached)), original(x))[1]
    with torch.no_grad():
        model(torch.ones(1, 4))
    model.eval()(torch.ones(1, 4))
    assert seen == [(Phase.EVAL, "layers.0 (Block)")] * 2


def test_a_forward_that_raised_leaves_no_stale_coordinate(attached: Path) -> None:
    model = Net()
    scoutd.shim.attach(model)
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    model(torch.ones(1, 4))
    assert now(attached) == (Phase.BETWEEN, "after forward")


def test_several_optimizers_are_one_step(attached: Path) -> None:
    first = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    second = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    for _ in range(3):
        first.step()
        second.step()
    record = slot(attached, shm.PROGRESS)
    assert record is not None
    assert record.step == 3


def test_data_and_checkpoint_are_boundaries(attached: Path, tmp_path: Path) -> None:
    seen: list[tuple[Phase, str]] = []

    class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> int:
            seen.append(now(attached))
            return index

    class Saved:
        def __reduce__(self) -> Any:
            seen.append(now(attached))
            return list, ()

    list(torch.utils.data.DataLoader(Data()))
    torch.save(Saved(), tmp_path / "saved")
    assert seen == [(Phase.INPUT, "DataLoader.__next__"), (Phase.CHECKPOINT, "torch.save")]
    assert now(attached) == (Phase.BETWEEN, "after torch.save")


def test_a_collective_says_what_must_agree(attached: Path) -> None:
    dist.all_reduce(torch.ones(2, 3, dtype=torch.float64), op=dist.ReduceOp.MAX)
    dist.broadcast(torch.ones(5, dtype=torch.int32), src=0)
    reduce, broadcast = (call for call in slots(attached, shm.CALLS) if call.kind == CallKind.COLLECTIVE)
    assert (reduce.operation, reduce.dtype, reduce.argument, reduce.shape, reduce.numel) == (
        "all_reduce",
        "float64",
        "MAX",
        "[2, 3]",
        6,
    )
    assert (broadcast.operation, broadcast.dtype, broadcast.argument) == ("broadcast", "int32", "root=0")
    assert (reduce.sequence, broadcast.sequence) == (1, 2)
    assert {reduce.state, broadcast.state} == {CallState.DONE}
    assert reduce.fingerprint != broadcast.fingerprint
    history = [(h.sequence, h.fingerprint) for h in slots(attached, shm.HISTORY)]
    assert sorted(history) == [(1, reduce.fingerprint), (2, broadcast.fingerprint)]
    counters = slot(attached, shm.COUNTERS)
    group = slot(attached, shm.GROUPS)
    assert counters is not None
    assert group is not None
    assert counters.enqueued == 2
    assert counters.group == group.group == reduce.group
    assert group.runs == ((0, 0, 1),)


def test_a_collective_is_published_before_it_is_made(attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def spy(group: Any, *args: Any) -> None:
        found.extend(slots(attached, shm.CALLS))
        found.append(slot(attached, shm.PROGRESS))
        raise RuntimeError("the backend gives up")

    monkeypatch.setattr(dist.ProcessGroup, "allreduce", spy)
    with pytest.raises(RuntimeError, match="gives up"):
        dist.all_reduce(torch.ones(1))
    call, progress = found
    assert (call.state, call.waiting, call.sequence) == (CallState.PENDING, 1, 1)
    assert (progress.phase, progress.operation, progress.waiting) == (Phase.COLLECTIVE, "all_reduce", 1)
    (after,) = slots(attached, shm.CALLS)
    assert (after.state, after.fingerprint) == (CallState.FAILED, call.fingerprint)


def test_a_refused_collective_does_not_count(attached: Path) -> None:
    with pytest.raises(TypeError):
        dist.all_reduce("no tensor")
    dist.all_reduce(torch.ones(1))
    assert [call.sequence for call in slots(attached, shm.CALLS)] == [1, 1]
    counters = slot(attached, shm.COUNTERS)
    assert counters is not None
    assert counters.enqueued == 1


def test_an_asynchronous_call_stays_pending_until_it_is_waited_for(attached: Path) -> None:
    work = dist.all_reduce(torch.ones(1), async_op=True)
    (call,) = slots(attached, shm.CALLS)
    assert call.waiting == 0
    work.wait()
    (call,) = slots(attached, shm.CALLS)
    assert call.state == CallState.DONE
    assert now(attached) == (Phase.BETWEEN, "after all_reduce")


def test_a_dropped_work_ends_its_call(attached: Path) -> None:
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work_done = work.is_completed
    eventually(work_done)
    del work, work_done
    gc.collect()
    eventually(lambda: slots(attached, shm.CALLS)[0].state == CallState.DONE)


def test_one_public_call_is_one_publication(attached: Path) -> None:
    with pytest.warns(FutureWarning):
        dist.all_gather_into_tensor(torch.ones(2), torch.ones(2))
    dist.all_gather_object([None], {"a": 1})
    operations = [call.operation for call in slots(attached, shm.CALLS)]
    assert operations == ["all_gather_into_tensor", "all_gather", "all_gather"]


def test_a_store_wait_is_visible_while_it_lasts(attached: Path) -> None:
    store = dist.HashStore()
    ended = threading.Event()

    def waiter() -> None:
        store.wait(["late"])
        ended.set()

    thread = threading.Thread(target=waiter)
    thread.start()

    def waiting() -> list[shm.Call]:
        return [c for c in slots(attached, shm.CALLS) if c.kind == CallKind.STORE and c.waiting]

    (call,) = eventually(waiting)
    assert (call.operation, call.argument, call.state) == ("store wait", "late", CallState.PENDING)
    store.set("late", "1")
    assert ended.wait(20)
    thread.join(20)
    assert waiting() == []


def test_the_heartbeat_beats_and_the_recorder_is_dumped_in_silence(attached: Path) -> None:
    dist.all_reduce(torch.ones(1))

    def dumped() -> bool:
        state = slot(attached, shm.RECORDER)
        return state is not None and state.dumped_ns > 0

    eventually(dumped)
    beat = slot(attached, shm.HEARTBEAT)
    assert beat is not None
    assert (beat.errors, beat.disabled) == (0, "")
    eventually(lambda: (slot(attached, shm.HEARTBEAT) or beat).beats > beat.beats)
    counters = slot(attached, shm.COUNTERS)
    assert counters is not None
    assert counters.retired == 1


def test_a_model_with_hooks_copies_and_pickles_without_scoutd(attached: Path) -> None:
    model = Net()
    scoutd.shim.attach(model)
    data = pickle.dumps(model)
    assert b"scoutd" not in data
    loaded = pickle.loads(data)
    x = torch.ones(1, 4)
    assert torch.equal(loaded(x), model(x))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"scoutd" not in buffer.getvalue()


def test_detach_restores_everything() -> None:
    functions = [
        getattr(dist, name)
        for name in (
            "all_reduce",
            "broadcast",
            "send",
            "isend",
            "irecv",
            "new_group",
            "destroy_process_group",
            "barrier",
        )
    ] + [
        torch.save,
        torch.load,
        torch.autograd.graph._engine_run_backward,
        DistributedDataParallel.__init__,
        torch.optim.Optimizer.__init__,
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
    ]

    def state() -> list[Any]:
        cells = [f.__closure__[0].cell_contents if f.__closure__ else None for f in functions]
        return [
            *(f.__code__ for f in functions),
            *cells,
            dist.Work.wait,
            dist.Store.get,
            dist.Store.wait,
            sys.excepthook,
            threading.excepthook,
            list(sys.meta_path),
            dict(_global_optimizer_pre_hooks),
        ]

    before, model = state(), Net()
    scoutd.shim.attach(model)
    path = Path(str(scoutd.shim.status()["file"]))
    assert state() != before
    assert model._forward_pre_hooks
    scoutd.shim.detach()
    assert state() == before
    assert not model._forward_pre_hooks
    assert not model.layers[0]._forward_hooks
    assert not path.exists()
    assert not [t for t in threading.enumerate() if t.name.startswith("scoutd")]
    assert scoutd.shim.status()["attached"] is False
    model(torch.ones(1, 4)).sum().backward()


def test_attaching_twice_is_attaching_once(attached: Path) -> None:
    current = session._session
    assert scoutd.shim.attach(Net())
    assert session._session is current


def test_explicit_coordinates_win(tmp_path: Path) -> None:
    scoutd.shim.attach(coordinates={"d": 3, "t": 1})
    topology = slot(Path(str(scoutd.shim.status()["file"])), shm.TOPOLOGY)
    assert topology is not None
    assert topology.text == '{"coordinates": {"d": 3, "t": 1}, "mesh": null, "wrapper": "none"}'


def test_compilation_is_a_phase(attached: Path) -> None:
    seen: list[tuple[Phase, str]] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(now(attached))
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(1))
    torch._dynamo.reset()  # empties dynamo's own lists of callbacks
    torch.compile(lambda x: x + 2, backend=backend)(torch.ones(1))
    assert seen == [(Phase.COMPILE, "torch.compile")] * 2
    assert now(attached)[0] != Phase.COMPILE
