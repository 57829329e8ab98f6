"""The ranks of one moment, sorted by what they are in the middle of."""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.census import Census, census
from scoutd.agent.evidence import Call, CallKind, CallState, Phase
from scoutd.agent.snapshot import snapshot
from tests.unit.agent.job import WORLD, Job, ns


def seen(job: Job) -> Census:
    return census(snapshot([(job.report(), 0)], ns(5)))


def test_a_job_that_trains_is_in_the_middle_of_nothing() -> None:
    assert seen(Job(4)) == Census({}, {}, {}, set(), [], [], frozenset(), [], [])


def test_a_rank_is_inside_the_call_that_its_host_awaits_first_and_then_the_oldest() -> None:
    job = Job(4)
    job.prefetches(1, 8, WORLD)
    job.waits(1, sequence=7, seconds=5.0)
    job.waits(2, sequence=7, seconds=5.0, waiting=False)
    job.waits(2, sequence=8, seconds=6.0, waiting=False)
    job.waits(3, sequence=6, state=CallState.DONE)
    told = seen(job)
    assert {rank: call.sequence for rank, call in told.inside.items()} == {1: 7, 2: 8}
    assert told.finished == {(WORLD, 6)}


def test_what_death_and_exceptions_ended_is_unfinished_and_not_pending() -> None:
    """The places are in the order in which a living rank waits there."""
    job = Job(4)
    job.waits(0, sequence=7, state=CallState.FAILED)
    job.waits(1, sequence=8)
    job.waits(2, sequence=7)
    job.waits(3, sequence=7)
    job.dies(3, ago=1.0, signal=9)
    told = seen(job)
    assert [at for at, _ in told.unfinished] == [WORLD, WORLD]
    assert {at: [rank for rank, _ in own] for at, own in told.unfinished.items()} == {
        (WORLD, 7): [0, 2, 3],
        (WORLD, 8): [1],
    }
    assert [(at[1], [rank for rank, _ in own]) for at, own in told.pending.items()] == [(8, [1]), (7, [2])]
    assert [report.rank for report in told.ended] == [3]


def test_who_said_why_it_will_end_has_ended_and_who_is_stopped_has_not() -> None:
    job = Job(4)
    job.notes(1, "ValueError", "no", ago=0.5)
    job.stops(2, ago=6.0)
    told = seen(job)
    assert [report.rank for report in told.ended] == [1]
    assert told.stopped == [2]


def test_waits_for_the_store_are_seen_by_the_call_or_by_the_coordinate() -> None:
    job = Job(4)
    job.at(0, Phase.STORE, "wait", 6.0, waiting=True)
    job.at(1, Phase.STORE, "set", 6.0)
    job.waits(3, group=0)
    store = replace(job.ranks[3].calls[0], kind=CallKind.STORE)
    job.change(3, calls=(store,), coordinates=())
    told = seen(job)
    assert told.outside == {0, 3}
    assert told.unfinished == {}


def test_transfers_are_those_that_a_host_waits_in() -> None:
    job = Job(4)
    job.waits(0)
    transfer = replace(job.ranks[0].calls[0], kind=CallKind.P2P_RECV, peer=1)
    job.change(0, calls=(transfer, replace(transfer, waiting=False, sequence=8)))
    assert seen(job).transfers == [(0, transfer)]


def test_splits_are_looked_at_where_the_exchange_is_over_too() -> None:
    job = Job(2)
    job.waits(0, operation="all_to_all", state=CallState.DONE)
    told: Call = replace(job.ranks[0].calls[0], sends=(1, 1), receives=(1, 1))
    job.change(0, calls=(told,))
    assert seen(job).exchanges == [(0, told)]
