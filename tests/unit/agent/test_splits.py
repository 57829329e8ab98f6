"""Splits of an all_to_all, compared edge by edge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scoutd.agent import splits
from scoutd.agent.evidence import CallState, Phase, ProcessStatus, ProcessView
from scoutd.agent.snapshot import Snapshot, snapshot
from scoutd.agent.verdict import Cause, State, Status, Symptom
from tests.unit.agent.job import Job, confirmed, implicated

Numbers = tuple[int | None, ...]


def exchange(job: Job, sends: dict[int, Numbers], receives: dict[int, Numbers], **call: object) -> None:
    """Every rank named is, or was, in all_to_all_single #7."""
    for rank in sends:
        job.waits(rank, operation="all_to_all_single", numel=None, **call)  # type: ignore[arg-type]
        last = job.ranks[rank].calls[-1]
        told = replace(last, sends=sends[rank], receives=receives[rank])
        job.change(rank, calls=(*job.ranks[rank].calls[:-1], told))


def even(world: int, rows: int = 2) -> dict[int, Numbers]:
    return dict.fromkeys(range(world), (rows,) * world)


def moment(job: Job) -> Snapshot:
    return snapshot([(job.report(), 0)], 10**10)


def test_equal_splits_are_no_finding() -> None:
    job = Job(4)
    exchange(job, even(4), even(4))
    assert splits.find(moment(job)) is None


def test_splits_may_differ_as_long_as_they_are_transposed() -> None:
    sends = {0: (1, 2, 3), 1: (4, 5, 6), 2: (7, 8, 9)}
    receives: dict[int, Numbers] = {j: tuple(sends[i][j] for i in range(3)) for j in range(3)}
    job = Job(3)
    exchange(job, dict(sends), receives)
    assert splits.find(moment(job)) is None


def test_a_rank_that_two_others_contradict_is_named() -> None:
    job = Job(4)
    exchange(job, {**even(4), 1: (2, 2, 3, 1)}, even(4))
    found = splits.find(moment(job))
    assert found is not None
    assert [str(edge) for edge in found.edges] == [
        "rank 1 sends 3 to rank 2, which expects 2",
        "rank 1 sends 1 to rank 3, which expects 2",
    ]
    finding = splits.finding(moment(job), found)
    assert (finding.cause, finding.status) == (Cause.COLLECTIVE_MISMATCH, Status.ATTRIBUTED)
    assert [i.rank for i in finding.implicated] == [1]
    assert [c.rank for c in finding.cleared] == [0, 2, 3]


def test_a_rank_that_expects_the_wrong_sizes_is_named_too() -> None:
    job = Job(4)
    exchange(job, even(4), {**even(4), 3: (1, 3, 2, 2)})
    found = splits.find(moment(job))
    assert found is not None
    assert found.culprit == 3


def test_one_edge_does_not_tell_who_is_wrong() -> None:
    job = Job(4)
    exchange(job, {**even(4), 1: (2, 2, 3, 2)}, even(4))
    found = splits.find(moment(job))
    assert found is not None
    finding = splits.finding(moment(job), found)
    assert (finding.status, finding.implicated, finding.suspects) == (Status.INCONCLUSIVE, (), (1, 2))


def test_two_wrong_ranks_are_not_guessed_at() -> None:
    job = Job(5)
    sends = {**even(5), 1: (3, 2, 2, 3, 2), 4: (3, 2, 3, 2, 2)}
    exchange(job, sends, even(5))
    found = splits.find(moment(job))
    assert found is not None
    assert found.culprit is None
    assert found.ranks == (0, 1, 2, 3, 4)


def test_a_group_of_two_attributes_nothing() -> None:
    job = Job(2)
    exchange(job, {**even(2), 1: (3, 2)}, even(2))
    found = splits.find(moment(job))
    assert found is not None
    assert found.culprit is None


def test_a_rank_that_contradicts_itself_is_wrong_in_any_group() -> None:
    job = Job(2)
    exchange(job, {**even(2), 1: (2, 1)}, even(2))
    found = splits.find(moment(job))
    assert found is not None
    assert found.culprit == 1


def test_who_has_not_come_yet_is_waited_for() -> None:
    job = Job(4)
    some = {rank: splits_ for rank, splits_ in even(4).items() if rank != 0}
    exchange(job, {**some, 1: (2, 2, 3, 1)}, some)
    assert splits.find(moment(job)) is None
    found = splits.find(moment(job), partial=True)
    assert found is not None
    assert (found.culprit, found.unfinished) == (1, True)


def test_unknown_numbers_are_no_disagreement() -> None:
    job = Job(4)
    exchange(job, {**even(4), 1: (None, None, None, None)}, even(4, rows=2))
    assert splits.find(moment(job)) is None


def test_of_large_groups_the_first_members_are_compared() -> None:
    world = 20
    job = Job(world)
    sends: dict[int, Numbers] = dict.fromkeys(range(world), (2,) * 16)
    exchange(job, {**sends, 3: (2,) * 5 + (9, 9) + (2,) * 9}, dict(sends))
    found = splits.find(moment(job))
    assert found is not None
    assert found.culprit == 3


@pytest.mark.parametrize("died", [False, True])
def test_the_core_says_so_though_an_innocent_rank_died(died: bool) -> None:
    job = Job(4)
    exchange(job, {**even(4), 1: (2, 2, 3, 1)}, even(4), state=CallState.PENDING)
    if died:
        aborted = ProcessView(ProcessStatus.GONE, signal=6, gone_age_ns=10**9)
        job.change(2, process=aborted)
    job.run(4.0)
    (verdict,) = job.core.verdicts
    assert (verdict.cause, verdict.state) == (Cause.COLLECTIVE_MISMATCH, State.CONFIRMED)
    assert implicated(verdict) == [1]


def test_nothing_has_to_hang() -> None:
    job = Job(4)
    exchange(
        job,
        {**even(4), 1: (2, 2, 1, 1)},
        even(4),
        state=CallState.DONE,
        waiting=False,
        seconds=0.3,
    )
    found = splits.find(moment(job))
    assert found is not None
    assert (found.culprit, found.unfinished) == (1, False)
    for rank in range(4):
        job.change(rank, silent_ns=10**8)
    job.run(3.0)
    (verdict,) = job.core.verdicts
    assert (verdict.cause, verdict.state) == (Cause.COLLECTIVE_MISMATCH, State.CONFIRMED)
    assert verdict.symptom is Symptom.SDC, "wrong data, and nobody waits"


def test_once_it_is_over_it_hides_no_later_hang_of_the_same_rank() -> None:
    job = Job(4)
    exchange(job, {**even(4), 1: (2, 2, 3, 1)}, even(4), state=CallState.DONE, waiting=False)
    for rank in range(4):
        job.at(rank, Phase.FORWARD, "blocks.0 (Block)", 0.1)
    assert [v.cause for v in confirmed(job.run(2.0))] == [Cause.COLLECTIVE_MISMATCH]
    job.hangs(1)
    for rank in (0, 2, 3):
        job.waits(rank, sequence=9)
    (hang,) = confirmed(job.run(2.0))
    assert (hang.cause, implicated(hang)) == (Cause.RANK_STALLED, [1])
