"""Who is one event, and so one verdict: it must not depend on when an agent looks, or what it heard first."""

from __future__ import annotations

from scoutd.agent import stall
from scoutd.agent.evidence import NodeReport, Source
from scoutd.agent.snapshot import snapshot
from scoutd.agent.verdict import State
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns


def test_who_fell_silent_together_is_one_verdict_although_one_was_not_heard_of_lately() -> None:
    """Not all of rank 2's silence is proven: that says nothing of when it fell silent."""
    job = Job(4)
    job.hangs(1, seconds=5.6)
    job.hangs(2, seconds=3.7)
    job.waits(0)
    job.waits(3)
    here = NodeReport("job", 1, "a", 1, 1, 4, tuple(job.ranks[r] for r in (0, 1, 3)))
    there = NodeReport("job", 1, "b", 1, 1, 4, (job.ranks[2],))
    moment = snapshot([(here, 0), (there, ns(2))], ns(5), quiet={"b": ns(1.5)})
    assert moment.silence_ns(2) == ns(4.2)
    assert stall.find(moment, job.settings)[0] == []
    moment = snapshot([(here, 0), (there, ns(2))], ns(5))
    (finding,) = stall.find(moment, job.settings)[0]
    assert finding.ranks == (1, 2)


def test_processes_that_stopped_together_are_one_verdict_and_a_later_one_has_its_own() -> None:
    """An agent that looks when all have been stopped for long says what one said that had looked before."""
    early, late = Job(6), Job(6)
    for rank, ago in ((0, 5.1), (1, 4.8), (2, 3.0)):
        early.stops(rank, ago=ago)
        late.stops(rank, ago=ago + 3)
    for rank in (3, 4, 5):
        early.waits(rank)
        late.waits(rank, seconds=8.9)
    first, second = confirmed(early.run(3))
    assert (implicated(first), implicated(second)) == ([0, 1], [2])
    assert 2 not in cleared(first)
    assert [v.id for v in confirmed(late.run(0))] == [first.id, second.id]


def half_undecided() -> Job:
    """Rank 0 hangs. Whether rank 1, which prefetched and for which rank 2 waits, hangs too is not known."""
    job = Job(3)
    job.group(1, "a", [0, 1])
    job.group(2, "b", [1, 2])
    job.hangs(0, seconds=5.1)
    job.waits(1, sequence=4, group=1, waiting=False, source=Source.RECORDER, seconds=5.0)
    job.waits(2, sequence=4, group=2, seconds=4.9)
    return job


def test_a_verdict_waits_for_the_stack_that_tells_who_else_hangs() -> None:
    job = half_undecided()
    assert confirmed(job.run(0.5)) == []
    job.stack(1, waits=False)
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [0, 1]


def test_a_stack_that_may_come_later_is_waited_for_for_one_round() -> None:
    job = half_undecided()
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [0]
    job.stack(1, waits=False)
    closed, _, whole = job.run(1)
    assert (closed.id, closed.state, implicated(whole)) == (verdict.id, State.RESOLVED, [0, 1])
