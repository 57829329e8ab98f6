"""Histories of the ranks of a node, compared while nothing hangs."""

from __future__ import annotations

import pytest

from scoutd.agent.evidence import Contested
from scoutd.daemon.observe import meetings
from scoutd.daemon.observe.observer import Observer
from scoutd.proto import shm
from tests.unit.daemon_observe.conftest import World
from tests.unit.daemon_observe.writer import CALL, GROUP, Writer

SUM, MAX, WHOLE, VIEW = 901, 902, 903, 904
WORDS = {
    SUM: {"argument": "SUM"},
    MAX: {"argument": "MAX"},
    WHOLE: {"operation": "broadcast", "argument": "root=0", "dtype": "float32"},
    VIEW: {"operation": "broadcast", "argument": "root=0", "dtype": "int32"},
}


class Cast:
    """Ranks that publish collectives of one group."""

    def __init__(self, world: World, size: int = 4, backend: str = "gloo") -> None:
        self.world = world
        self.ranks = [world.rank(rank) for rank in range(size)]
        self.group = GROUP._replace(backend=backend)
        self.slots = [0] * size
        for writer in self.ranks:
            writer.put(shm.GROUPS, self.group)

    def call(self, rank: int, sequence: int, fingerprint: int = SUM, **words: object) -> None:
        writer, clock = self.ranks[rank], self.world.clock
        told = {"state": shm.CallState.DONE, "waiting": 0, "entered_ns": clock.now, **WORDS[fingerprint]}
        record = CALL._replace(sequence=sequence, fingerprint=fingerprint, **told)._replace(**words)
        writer.put(shm.CALLS, record, self.slots[rank] % shm.CALLS.slots)
        self.slots[rank] += 1
        writer.put(shm.COUNTERS, shm.Counters(GROUP.group, sequence, shm.UNKNOWN_U64, clock.now))
        self.history(writer, sequence, fingerprint)

    @staticmethod
    def history(writer: Writer, sequence: int, fingerprint: int) -> None:
        slot = sequence % shm.HISTORY_DEPTH
        record = shm.History(GROUP.group, sequence, fingerprint)
        shm.write(writer.view, writer.words, shm.HISTORY, slot, sequence, record)

    def all_call(self, sequence: int, odd: dict[int, int] | None = None) -> None:
        for rank in range(len(self.ranks)):
            self.call(rank, sequence, (odd or {}).get(rank, SUM))


def seen(world: World, observer: Observer, seconds: float = 3.0) -> tuple[Contested, ...]:
    """What is contested after some passes in which nobody does anything."""
    found: tuple[Contested, ...] = ()
    for _ in range(int(seconds * 4)):
        world.clock.advance(0.25)
        (observation,) = observer.observe()
        found = observation.report.contested
    return found


def test_one_call_that_differs_is_told_with_its_words(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(1)
    cast.all_call(2, {2: MAX})
    cast.all_call(3)
    (found,) = seen(world, observer)
    assert (found.group, found.sequence, found.name) == (GROUP.group, 2, "default_pg")
    assert [c.fingerprint.argument for _, c in found.calls] == ["SUM", "SUM", "MAX", "SUM"]
    assert found.members is not None
    assert list(found.members) == [0, 1, 2, 3]


def test_it_is_believed_only_after_a_while(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(2, {2: MAX})
    cast.all_call(3)
    assert seen(world, observer, 1.0) == ()
    assert len(seen(world, observer, 2.0)) == 1


def test_the_newest_call_of_a_living_rank_is_not_compared(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(2, {2: MAX})
    assert seen(world, observer) == ()


def test_a_refused_call_whose_place_was_taken_is_forgotten(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(1)
    cast.call(2, 2, MAX, state=shm.CallState.FAILED)
    cast.all_call(2)
    cast.all_call(3)
    assert seen(world, observer) == ()


def test_a_view_of_another_type_is_no_difference(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    for rank in range(4):
        cast.call(rank, 1, VIEW if rank == 1 else WHOLE)
    cast.all_call(2)
    assert seen(world, observer) == ()
    cast.all_call(3, {3: MAX})
    cast.all_call(4)
    (found,) = seen(world, observer)
    assert found.sequence == 3


def test_a_rank_that_comes_later_has_its_say(world: World) -> None:
    """Its newest call is the one in question when the others have gone on."""
    cast, observer = Cast(world), world.observer()
    cast.all_call(2, {2: MAX})
    for rank in (0, 2, 3):
        cast.call(rank, 3, SUM)
    assert seen(world, observer, 1.0) == ()
    cast.call(1, 3, SUM)
    cast.all_call(4)
    (found,) = seen(world, observer)
    assert sorted(rank for rank, _ in found.calls) == [0, 1, 2, 3]


def test_a_group_that_is_made_anew_explains_it(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    for rank in (0, 1, 2):
        cast.call(rank, 2, SUM)
        cast.call(rank, 3, SUM)
    cast.call(3, 2, MAX)
    cast.call(3, 3, SUM)
    assert seen(world, observer, 1.0) == ()
    cast.ranks[3].put(shm.GROUPS, cast.group._replace(created_ns=5))
    assert seen(world, observer) == ()


def test_recorded_fingerprints_are_not_compared(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(2)
    cast.history(cast.ranks[2], 2, MAX | shm.RECORDED)
    cast.all_call(3)
    assert seen(world, observer) == ()


def test_torn_records_are_not_compared(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(2, {2: MAX})
    at = shm.HISTORY.position(2, 0) + 16 + 16
    cast.ranks[2].view[at] ^= 1
    cast.all_call(3)
    assert seen(world, observer) == ()


@pytest.mark.parametrize(("backend", "believed"), [("nccl", False), ("gloo", True)])
def test_transfers_in_a_group_of_another_backend_shift_its_sequences(
    world: World, backend: str, believed: bool
) -> None:
    cast, observer = Cast(world, backend=backend), world.observer()
    cast.all_call(2, {2: MAX})
    cast.call(0, 1, SUM, kind=shm.CallKind.P2P_SEND, peer=1)
    cast.history(cast.ranks[0], 1, SUM)
    cast.all_call(3)
    assert bool(seen(world, observer)) is believed


def test_transfers_that_the_table_has_forgotten_are_looked_for_longer(world: World) -> None:
    cast, observer = Cast(world, backend="nccl"), world.observer()
    cast.all_call(2, {2: MAX})
    cast.all_call(3)
    assert seen(world, observer, 9.0) == ()
    cast.call(0, 1, SUM, kind=shm.CallKind.P2P_SEND, peer=1)
    cast.history(cast.ranks[0], 1, SUM)
    assert seen(world, observer, 20.0) == ()


def test_without_transfers_another_backend_is_believed_after_a_longer_while(world: World) -> None:
    cast, observer = Cast(world, backend="nccl"), world.observer()
    cast.all_call(2, {2: MAX})
    cast.all_call(3)
    assert seen(world, observer, 9.0) == ()
    assert len(seen(world, observer, 3.0)) == 1


def test_a_shim_that_had_an_error_may_count_wrongly(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(2, {2: MAX})
    cast.all_call(3)
    assert seen(world, observer, 1.0) == ()
    cast.ranks[2].put(shm.HEARTBEAT, shm.Heartbeat(world.clock.now, 1, 1, 0, 0, 0, ""))
    assert seen(world, observer) == ()


def test_a_call_that_was_numbered_too_low_leaves_a_gap(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    for sequence in range(1, 6):
        for rank in range(4):
            if (rank, sequence) != (2, 3):
                cast.call(rank, sequence, MAX if sequence == 3 else SUM)
    cast.history(cast.ranks[2], 2, MAX)
    assert seen(world, observer) == ()


def test_members_that_did_not_fit_into_the_file_are_known_where_all_are_here(world: World) -> None:
    cast, observer = Cast(world), world.observer()
    for writer in cast.ranks:
        writer.put(shm.GROUPS, cast.group._replace(truncated=1))
    cast.all_call(2, {2: MAX})
    cast.all_call(3)
    (found,) = seen(world, observer)
    assert list(found.members or ()) == [0, 1, 2, 3]


def test_nothing_is_read_where_nothing_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cast, observer = Cast(world), world.observer()
    cast.all_call(1)
    cast.all_call(2)
    seen(world, observer, 1.0)
    monkeypatch.setattr(meetings, "_window", lambda *_: pytest.fail("read again"))
    assert seen(world, observer, 1.0) == ()
