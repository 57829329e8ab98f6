"""One moment out of reports of different ages."""

from __future__ import annotations

from scoutd.agent.core import Core
from scoutd.agent.deaths import deaths
from scoutd.agent.events import Evidence, Observed, Tick
from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.snapshot import snapshot
from scoutd.agent.verdict import Cause
from tests.unit.agent.job import Job, confirmed, ns, verdicts


def node(name: str, *ranks: RankReport) -> NodeReport:
    return NodeReport("job", 1, name, 1, 1, 4, ranks)


def test_the_end_of_a_rank_ages_with_its_report() -> None:
    job = Job(4)
    job.dies(2, ago=0.1, signal=9)
    moment = snapshot([(node("a", job.ranks[0], job.ranks[2]), ns(3))], ns(5))
    assert [d.age_ns for d in deaths(moment)] == [ns(3.1)]


def test_silence_before_a_death_does_not_grow_after_it() -> None:
    job = Job(4)
    job.dies(2, ago=0.5, signal=9)
    job.change(2, silent_ns=ns(0.7))
    moment = snapshot([(node("a", job.ranks[2]), ns(60))], ns(5))
    assert moment.silence_ns(2) == ns(0.2)


def test_a_death_that_was_reported_once_is_judged_when_it_is_old_enough() -> None:
    """Reports are sent when their content changes; a dead node-mate changes nothing any more."""
    job = Job(4)
    job.dies(3, ago=0.0, signal=9)
    core = Core(job.settings)
    found = []
    for k in range(16):
        now = ns(100 + 0.1 * k)
        mine = node("a", *(job.ranks[r] for r in (0, 1)))
        other = node("b", *(job.ranks[r] for r in (2, 3)))
        core.step(Observed(mine), now)
        core.step(Evidence(((mine, 0), (other, ns(0.1 * k))), frozenset(), True), now)
        found += confirmed(verdicts(core.step(Tick(), now)))
    assert [(v.cause, [i.rank for i in v.implicated]) for v in found] == [(Cause.PROCESS_DEAD, [3])]


def test_a_heartbeat_does_not_fall_silent_in_an_old_report() -> None:
    """A hung job's content does not change, so its reports grow old while the hearts beat on."""
    job = Job(4)
    moment = snapshot([(node("a", job.ranks[0]), ns(60))], heartbeat_limit_ns=ns(5))
    assert not moment.heartbeat_silent(0)
    job.change(0, heartbeat_age_ns=ns(6))
    moment = snapshot([(node("a", job.ranks[0]), ns(60))], heartbeat_limit_ns=ns(5))
    assert moment.heartbeat_silent(0)


def test_a_rank_is_not_silent_because_nobody_hears_of_it() -> None:
    """Its report grows old, but only what its node's beats confirm is silence."""
    job = Job(4)
    moment = snapshot([(node("b", job.ranks[2]), ns(6))], ns(5), quiet={"b": ns(5.8)})
    assert moment.silence_ns(2) == ns(0.1) + ns(0.2)
    moment = snapshot([(node("b", job.ranks[2]), ns(6))], ns(5), quiet={"b": ns(7)})
    assert moment.silence_ns(2) == ns(0.1)
    moment = snapshot([(node("a", job.ranks[2]), ns(6))], ns(5), quiet={"b": ns(5.8)})
    assert moment.silence_ns(2) == ns(6.1)
