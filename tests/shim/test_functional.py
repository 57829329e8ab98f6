"""Functional and coalesced collectives and the making of groups, on one rank: published, ended, undone."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.distributed_c10d as c10d

import scoutd.shim
from scoutd.proto import shm
from scoutd.proto.shm import CallState
from scoutd.shim import session
from tests.unit.shim.reading import slots

WORLD = "0"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of an attached job of one rank."""
    monkeypatch.setenv("SCOUTD_ROOT", str(tmp_path / "scoutd"))
    hook = sys.excepthook
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert scoutd.shim.attach(), scoutd.shim.status()
    yield Path(str(scoutd.shim.status()["file"]))
    scoutd.shim.detach()
    dist.destroy_process_group()
    sys.excepthook = hook


def calls(path: Path) -> list[tuple[str, int, CallState]]:
    found = sorted(slots(path, shm.CALLS), key=lambda call: call.entered_ns)
    return [(call.operation, call.sequence, CallState(call.state)) for call in found]


def test_a_result_is_pending_until_it_is_used(path: Path) -> None:
    result = funcol.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    assert calls(path) == [("all_reduce", 1, CallState.PENDING)]
    assert (result + 1).tolist() == [2.0, 2.0]
    assert calls(path) == [("all_reduce", 1, CallState.DONE)]


def test_a_view_waits_for_the_same_collective(path: Path) -> None:
    result = funcol.all_gather_single(torch.ones(2), 0, dist.group.WORLD)
    assert result.view(2, 1).sum().item() == 2
    assert calls(path) == [("all_gather_into_tensor", 1, CallState.DONE)]


def test_a_result_that_nobody_uses_does_not_hold_its_slot(path: Path) -> None:
    for _ in range(3 * shm.CALLS.slots):
        funcol.all_reduce(torch.ones(2), "max", dist.group.WORLD)
    gc.collect()
    kept = [funcol.all_reduce(torch.ones(2), "max", dist.group.WORLD) for _ in range(shm.CALLS.slots)]
    assert len(kept) == shm.CALLS.slots
    dist.barrier()
    assert calls(path)[-1][0] == "barrier"
    assert session._session is not None
    assert session._session.file.dropped == 0


def test_results_do_not_live_longer_than_without_a_shim(path: Path) -> None:
    import weakref

    result = funcol.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
    reference = weakref.ref(result)
    del result
    gc.collect()
    assert reference() is None


def test_a_batch_is_one_call(path: Path) -> None:
    with c10d._coalescing_manager():
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(3))
        assert calls(path) == []
    assert calls(path) == [("all_reduce_coalesced", 1, CallState.DONE)]


def test_an_exception_inside_a_batch_passes(path: Path) -> None:
    with pytest.raises(KeyError, match="odd"), c10d._coalescing_manager():
        raise KeyError("odd")
    c10d._world.pg_coalesce_state.clear()  # torch leaves the batch open as well
    dist.all_reduce(torch.ones(2))
    assert calls(path) == [("all_reduce", 1, CallState.DONE)]


def test_groups_are_made_in_meetings(path: Path) -> None:
    for _ in range(2):
        dist.new_group([0])
    assert calls(path) == [("new_group", 1, CallState.DONE), ("new_group", 2, CallState.DONE)]
    arguments = [call.argument for call in slots(path, shm.CALLS)]
    assert arguments == ["ranks=0", "ranks=0"]


def test_compiled_code_is_traced_as_without_a_shim(path: Path) -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", dist.group.WORLD) + 1

    assert function(torch.ones(2)).tolist() == [2.0, 2.0]
    assert calls(path) == []
    assert scoutd.shim.status()["errors"] == {}


def test_detach_leaves_nothing_behind(path: Path) -> None:
    scoutd.shim.detach()
    assert [name for name in vars(funcol) if "scoutd" in name] == []
    assert "_scoutd" not in str(funcol.all_reduce.__code__.co_names)
    assert (funcol.all_reduce(torch.ones(1), "sum", dist.group.WORLD) + 0).item() == 1
    with c10d._coalescing_manager():
        dist.all_reduce(torch.ones(2))


def test_no_warning_is_new(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        funcol.all_reduce(torch.ones(2), "sum", dist.group.WORLD).tolist()
        with c10d._coalescing_manager():
            dist.all_reduce(torch.ones(2))
