"""Equal evidence is worked out once in a process."""

from __future__ import annotations

from scoutd.agent import recent
from scoutd.agent.evidence import NodeReport
from scoutd.agent.snapshot import Snapshot, snapshot
from tests.unit.agent.job import Job, ns

HEARTBEAT = ns(5)


def moment(report: NodeReport, age_s: float = 0.0) -> Snapshot:
    return snapshot([(report, ns(age_s))], HEARTBEAT)


def test_another_moment_of_the_same_reports_asks_nothing_again() -> None:
    job, asked = Job(4), []
    report = NodeReport("job", 1, "a", 1, 1, 4, tuple(job.ranks.values()))

    def ask(of: Snapshot) -> int:
        asked.append(of)
        return len(asked)

    first, second = moment(report), moment(report, 3.0)
    recent.share(first)
    assert first.once(ask, lasting=True) == 1
    recent.share(second)
    assert second.once(ask, lasting=True) == 1
    assert asked == [first]


def test_equal_words_in_other_reports_are_another_matter() -> None:
    one, other = (NodeReport("job", 1, "a", 1, 1, 4, tuple(Job(4).ranks.values())) for _ in range(2))
    first, second = moment(one), moment(other)
    recent.share(first)
    first.once(len_of, lasting=True)
    recent.share(second)
    assert len_of not in second._lasting


def test_nothing_is_kept_alive() -> None:
    job = Job(4)
    for k in range(3 * recent.KEPT):
        report = NodeReport("job", 1, "a", 1, k, 4, tuple(job.ranks.values()))
        recent.share(moment(report))
    assert len(recent._recent) <= recent.KEPT
    assert all(known() is None for known in recent._recent)


def len_of(of: Snapshot) -> int:
    return len(of.ranks)
