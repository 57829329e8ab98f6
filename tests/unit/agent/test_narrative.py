"""Whom a verdict clears, and what it says of them."""

from __future__ import annotations

from scoutd.agent.narrative import MOST_WAITS, cleared, pending_text
from scoutd.agent.snapshot import Snapshot, snapshot
from scoutd.agent.waitfor import build
from tests.unit.agent.job import Job, ns


def seen(job: Job) -> Snapshot:
    return snapshot([(job.report(), 0)], ns(5))


def waits_for(job: Job, *guilty: int) -> dict[int, tuple[int, ...]]:
    moment = seen(job)
    return {each.rank: each.waits_for for each in cleared(moment, build(moment), guilty)}


def test_who_waits_where_everybody_is_waits_for_the_guilty_of_its_groups() -> None:
    job = Job(6)
    job.group(8, "left", [0, 1, 2])
    job.group(9, "right", [2, 3, 4, 5])
    for rank in range(6):
        job.waits(rank, sequence=4, group=8 if rank < 3 else 9)
    job.waits(2, sequence=4, group=9)
    assert waits_for(job, 1, 5) == {0: (1,), 2: (1, 5), 3: (5,), 4: (5,)}


def test_a_line_tells_few_of_many_guilty_ranks() -> None:
    """A verdict grows with the ranks, not with their square."""
    job = Job(3 * MOST_WAITS)
    for rank in job.ranks:
        job.waits(rank)
    guilty = range(0, 3 * MOST_WAITS, 2)
    first = tuple(guilty)[:MOST_WAITS]
    assert waits_for(job, *guilty) == dict.fromkeys(range(1, 3 * MOST_WAITS, 2), first)


def test_ranks_in_one_call_share_its_words() -> None:
    job = Job(3)
    job.waits(0)
    job.waits(1)
    job.waits(2, sequence=8)
    moment = seen(job)
    told = [each.reason for each in cleared(moment, build(moment), ())]
    assert told == ["waits in all_reduce #7 of default_pg"] * 2 + ["waits in all_reduce #8 of default_pg"]
    assert told[0] is told[1]
    assert pending_text(moment, 0) is pending_text(moment, 1)
