"""Process groups that only some ranks made."""

from __future__ import annotations

from scoutd.agent.evidence import Call, CallKind, CallState, Fingerprint, Phase, Source
from scoutd.agent.meeting import members_of
from scoutd.agent.verdict import Cause, Status, Verdict
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns

MEETING = 99
ALL = "ranks=0,1,2,3"


def job() -> Job:
    made = Job(4)
    made.group(MEETING, "new_group", [0, 1, 2, 3], enqueued=0)
    return made


def makes(job: Job, rank: int, *arguments: str) -> None:
    """The rank has made these groups, and waits in the last of them."""
    for k, argument in enumerate(arguments, 1):
        last = k == len(arguments)
        call = Call(
            MEETING,
            k,
            CallKind.COLLECTIVE,
            CallState.PENDING if last else CallState.DONE,
            Fingerprint("new_group", "", 0, argument),
            "",
            ns(6),
            last,
            Source.PUBLIC,
        )
        job.change(rank, calls=(*job.ranks[rank].calls, call))
    job.enqueues(rank, len(arguments), MEETING)
    job.at(rank, Phase.INIT, "new_group", 6, waiting=True)


def found(job: Job) -> Verdict:
    (verdict,) = confirmed(job.run(1.0))
    return verdict


def test_a_rank_that_went_on_without_the_group() -> None:
    it = job()
    for rank in (0, 1, 3):
        makes(it, rank, ALL)
    it.waits(2)
    verdict = found(it)
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2])
    assert cleared(verdict) == {0: [2], 1: [2], 3: [2]}
    assert verdict.summary.startswith("rank 2 has not called new_group(ranks=0,1,2,3)")


def test_a_group_of_two_that_only_its_members_made_is_missed_by_the_others() -> None:
    it = job()
    makes(it, 0, "ranks=0,1", ALL)
    makes(it, 1, "ranks=0,1", ALL)
    makes(it, 2, ALL)
    makes(it, 3, ALL)
    verdict = found(it)
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2, 3])


def test_groups_in_another_order_are_told_by_the_first_one() -> None:
    it = job()
    for rank in (0, 1, 3):
        makes(it, rank, ALL)
    makes(it, 2, "ranks=0,2")
    assert implicated(found(it)) == [2]


def test_where_half_of_the_members_called_nobody_is_named() -> None:
    it = job()
    makes(it, 0, ALL)
    makes(it, 1, ALL)
    it.waits(2)
    it.waits(3)
    verdict = found(it)
    assert (verdict.cause, verdict.status) == (Cause.COLLECTIVE_MISSING, Status.INCONCLUSIVE)
    assert implicated(verdict) == []
    assert "ranks 2 and 3 have not called" in verdict.summary


def test_a_rank_that_hangs_before_the_group_is_stalled() -> None:
    it = job()
    for rank in (0, 1, 3):
        makes(it, rank, ALL)
    it.hangs(2)
    verdict = found(it)
    assert (verdict.cause, implicated(verdict)) == (Cause.RANK_STALLED, [2])


def test_calls_that_are_no_longer_known_prove_nothing() -> None:
    it = job()
    for rank in (0, 1, 3):
        makes(it, rank, ALL)
    it.enqueues(2, 1, MEETING)
    it.waits(2)
    assert "has not called" not in found(it).summary


def test_a_maker_waits_for_the_members_of_the_new_group_only() -> None:
    it = job()
    makes(it, 0, "ranks=0,1")
    it.hangs(1)
    it.hangs(2, seconds=7.5)
    it.hangs(3, seconds=9.0)
    verdict = found(it)
    assert (verdict.cause, implicated(verdict)) == (Cause.RANK_STALLED, [1])
    assert cleared(verdict)[0] == [1]


def test_with_a_barrier_after_it_the_maker_waits_for_everybody() -> None:
    it = job()
    makes(it, 0, "ranks=0,1 all")
    makes(it, 1, "ranks=0,1 all")
    it.waits(2)
    it.waits(3)
    verdict = found(it)
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2, 3])


def test_ranks_that_are_not_written_out_are_unknown() -> None:
    assert members_of("ranks #0a1b2c") is None
    assert members_of("ranks=1,2 all") == {1, 2}


def test_who_is_not_there_yet_has_skipped_nothing() -> None:
    """Rank 2 made the second group under the first one's name; rank 3 is caught in the first."""
    it = job()
    makes(it, 0, "ranks=0,1,3", ALL)
    makes(it, 1, "ranks=0,1,3", ALL)
    makes(it, 2, ALL)
    makes(it, 3, "ranks=0,1,3")
    verdict = found(it)
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2])
