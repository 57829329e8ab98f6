"""Ranks that wait for a key of the store, and the one that has not come there."""

from __future__ import annotations

from scoutd.agent.evidence import Call, CallKind, CallState, Fingerprint, Phase, Source
from scoutd.agent.narrative import MOST_WAITS
from scoutd.agent.verdict import Cause, State, Status
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns


def asks(job: Job, rank: int, *keys: str, pending: bool = True) -> None:
    """The rank has waited for these keys, and is inside the wait for the last."""
    for k, key in enumerate(keys, 1):
        inside = pending and k == len(keys)
        state = CallState.PENDING if inside else CallState.DONE
        call = Call(
            0,
            k,
            CallKind.STORE,
            state,
            Fingerprint("store get", "", 0, key),
            "",
            ns(6),
            inside,
            Source.PUBLIC,
        )
        job.change(rank, calls=(*job.ranks[rank].calls, call))
    if pending:
        job.at(rank, Phase.STORE, "store get", 6, waiting=True)


def test_the_rank_that_did_not_come_is_named() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        asks(job, rank, "a", "b")
    asks(job, 2, "a", pending=False)
    job.hangs(2)
    (verdict,) = confirmed(job.run(1.0))
    assert (verdict.cause, implicated(verdict)) == (Cause.STORE_WAIT, [2])
    assert cleared(verdict) == {0: [2], 1: [2], 3: [2]}


def test_keys_of_their_own_are_matched_by_number() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        asks(job, rank, "a", f"go {rank}")
    asks(job, 2, "a", pending=False)
    job.hangs(2)
    assert [implicated(v) for v in confirmed(job.run(1.0))] == [[2]]


def test_while_it_is_busy_or_moves_nothing_is_confirmed() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        asks(job, rank, "a")
    job.hangs(2)
    job.busy(2, cpu=0.9)
    reports = job.run(1.0)
    assert confirmed(reports) == []
    assert [v.state for v in reports] == [State.OPEN]
    job.at(2, Phase.FORWARD, "blocks.2 (Block)", 0.1)
    assert confirmed(job.run(1.0)) == []


def test_half_of_the_job_is_not_enough_to_name_anybody() -> None:
    job = Job(4)
    asks(job, 0, "a")
    asks(job, 1, "a")
    job.hangs(2)
    job.hangs(3)
    (verdict,) = confirmed(job.run(1.0))
    assert (verdict.cause, verdict.status) == (Cause.STORE_WAIT, Status.INCONCLUSIVE)
    assert implicated(verdict) == []
    assert "ranks 2 and 3" in verdict.summary


def test_many_that_wait_for_different_things_name_nobody() -> None:
    """They may wait for each other."""
    job = Job(4)
    asks(job, 0, "a")
    asks(job, 1, "x", "b")
    asks(job, 2, "x", "y", "c")
    job.hangs(3)
    (verdict,) = confirmed(job.run(1.0))
    assert (verdict.cause, implicated(verdict)) == (Cause.STORE_WAIT, [])


def test_who_has_passed_it_or_waits_for_others_is_not_late() -> None:
    job = Job(4)
    for rank in (0, 1):
        asks(job, rank, "a")
    asks(job, 2, "a", pending=False)
    job.hangs(2)
    job.waits(3)
    (verdict,) = confirmed(job.run(1.0))
    assert implicated(verdict) != [3]


def test_a_line_tells_few_of_many_late_ranks() -> None:
    """Everybody waits for a third of the job: a verdict grows with the ranks, not with their square."""
    job = Job(120)
    for rank in range(120):
        if rank % 3:
            asks(job, rank, "a")
        else:
            job.hangs(rank)
    (verdict,) = confirmed(job.run(1.0))
    assert implicated(verdict) == list(range(0, 120, 3))
    assert {len(each.waits_for) for each in verdict.cleared} == {MOST_WAITS}
