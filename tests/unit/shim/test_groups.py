from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch.distributed.distributed_c10d as c10d

from scoutd.proto import shm
from scoutd.shim.groups import Groups, GroupState, backend_of, group_id, runs_of
from scoutd.shim.publisher import in_our_count
from scoutd.shim.recorder import Entry
from scoutd.shim.shmfile import ShmFile
from tests.unit.shim.reading import slots


@pytest.mark.parametrize(
    ("ranks", "runs"),
    [
        ([0, 1, 2, 3], ((0, 1, 4),)),
        ([0, 2, 4, 6], ((0, 2, 4),)),
        ([5], ((5, 0, 1),)),
        ([0, 1, 4, 5], ((0, 1, 2), (4, 1, 2))),
        ([3, 1, 0], ((3, 0, 1), (1, 0, 1), (0, 0, 1))),  # group order is kept, strides never go down
        (list(range(8192)), ((0, 1, 8192),)),
    ],
)
def test_runs_hold_the_ranks_in_group_order(ranks: list[int], runs: tuple[tuple[int, int, int], ...]) -> None:
    assert runs_of(ranks) == runs
    assert [start + k * stride for start, stride, count in runs for k in range(count)] == ranks


def test_a_groups_identity_depends_on_name_and_members_and_not_on_their_order() -> None:
    assert group_id("0", [0, 1]) == group_id("0", [1, 0])
    assert len({group_id("0", [0, 1]), group_id("1", [0, 1]), group_id("0", [0, 2])}) == 3
    assert 0 < group_id("0", [0]) < 2**64


@pytest.mark.parametrize(
    ("told", "config", "backend"),
    [
        ("gloo", "cpu:gloo,cuda:gloo", "gloo"),
        ("undefined", "cpu:gloo", "gloo"),
        ("undefined", "cpu:gloo,cuda:nccl,mps:gloo", "nccl"),
        ("cuda:nccl,cpu:gloo", "cuda:nccl,cpu:gloo", "nccl"),
        ("cpu:gloo,xpu:xccl", "cpu:gloo,xpu:xccl", "cpu:gloo,xpu:xccl"),
    ],
)
def test_the_backend_is_the_one_that_counts(
    monkeypatch: pytest.MonkeyPatch, told: str, config: str, backend: str
) -> None:
    group = object()
    monkeypatch.setattr(c10d, "get_backend", lambda _: told)
    monkeypatch.setattr(c10d, "_world", SimpleNamespace(pg_backend_config={group: config}))
    assert backend_of(group) == backend


class Counted(GroupState):
    """A group of a Gloo backend whose counter is set by hand."""

    def __init__(self) -> None:
        super().__init__(None, "0", [0, 1, 2, 3], 0, "gloo")
        self.counter = 0
        self._counter = lambda: self.counter
        self.has_counter = True


@pytest.mark.parametrize(("p2p", "inside"), [(2, 6), (1, 2), (0, 2)])
def test_ranks_agree_on_sequences_whatever_else_the_backend_counts(p2p: int, inside: int) -> None:
    """The numbers that torch 2.13 shows on ranks 0, 1 and 2 of four (see ``MONITORED_BARRIER_COUNTS``)."""
    state = Counted()
    state.counter = 1 + p2p  # one collective, some messages
    state.p2p = p2p
    raw = state.raw()
    state.frozen = True
    state.counter += inside
    assert state.enqueued() == state.highest, "inside of a monitored barrier the counter means nothing"
    state.uncount(raw)
    assert state.enqueued() == 1
    state.counter += 1
    assert state.enqueued() == 2
    recorded = Entry("0", 4, False, 0, "all_reduce", "", "", 0, offset=state.counter - 4)
    assert in_our_count(recorded, state).sequence == 2
    earlier = Entry("0", 1, True, 0, "all_reduce", "", "", 0, offset=0)
    assert in_our_count(earlier, state).sequence == 1
    assert state.enqueued() == 2


def test_messages_that_nobody_announced_are_found_in_the_recorder() -> None:
    state = Counted()
    state.counter = 5
    recorded = Entry("0", 2, False, 0, "all_reduce", "", "", 0, offset=3)
    assert in_our_count(recorded, state).sequence == 2
    assert state.enqueued() == 2


def test_a_meeting_is_a_group_of_its_own_that_counts_calls(file: ShmFile) -> None:
    groups = Groups(file)
    first = groups.meeting("new_group", [0, 1, 2])
    assert first is not None
    assert groups.meeting("new_group", [2, 1, 0]) is first
    assert groups.meeting("new_group", [0, 1]) is not first
    assert [first.next_sequence(0), first.next_sequence(0), first.enqueued()] == [1, 2, 2]
    names = {(g.name, g.size, g.backend) for g in slots(file.path, shm.GROUPS)}
    assert names == {("new_group", 3, "store"), ("new_group", 2, "store")}
