"""When a look at all nodes is worth its cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scoutd.agent.attention import (
    INCOMPLETE_NS_PER_RANK,
    LATE_INCOMPLETE_NS_PER_RANK,
    LATE_NS,
    LATE_NS_PER_RANK,
    PAUSE_NS_PER_RANK,
    SETTLED_LEAST_NS,
    Attention,
    Reports,
)
from scoutd.agent.evidence import NodeReport, ProcessStatus, ProcessView, RankReport
from tests.unit.agent.job import Job, ns

TIMEOUT = ns(10)
NOW = ns(1000)


def spread(silent_s: float, change: Callable[[Job], None]) -> tuple[Reports, tuple[RankReport, ...]]:
    """Four ranks that have been silent for so long, on two nodes; the second node's are ours."""
    job = Job(4)
    change(job)
    for rank in range(4):
        job.change(rank, silent_ns=ns(silent_s))
    reports = {
        node: (NodeReport("job", 1, node, 1, 1, 4, tuple(job.ranks[r] for r in ranks)), NOW)
        for node, ranks in (("a", (0, 1)), ("b", (2, 3)))
    }
    return reports, reports["b"][0].ranks


def all_wait(job: Job) -> None:
    for rank in range(4):
        job.waits(rank)


def another_hangs(job: Job) -> None:
    all_wait(job)
    job.ranks[0] = job._healthy(0)


def ours_hangs(job: Job) -> None:
    all_wait(job)
    job.ranks[3] = job._healthy(3)


def another_dies(job: Job) -> None:
    all_wait(job)
    job.change(0, process=ProcessView(ProcessStatus.GONE, None, 9, gone_age_ns=0))


def another_tells_splits(job: Job) -> None:
    all_wait(job)
    (call,) = job.ranks[0].calls
    job.change(0, calls=(replace(call, sends=(1, 2, 3, 4)),))


@pytest.mark.parametrize(
    ("silent_s", "change", "wanted"),
    [
        (4.9, ours_hangs, False),
        (5.1, ours_hangs, True),
        (9.9, another_hangs, False),
        (10.1, another_hangs, True),
        (0.1, another_dies, True),
        (0.1, another_tells_splits, True),
    ],
)
def test_a_look_is_due_only_when_it_can_say_something(
    silent_s: float, change: Callable[[Job], None], wanted: bool
) -> None:
    reports, mine = spread(silent_s, change)
    assert Attention().due(reports, mine, TIMEOUT, True, NOW) is wanted


def test_the_age_of_a_report_counts() -> None:
    reports, mine = spread(4.0, ours_hangs)
    older = {node: (report, at - ns(2)) for node, (report, at) in reports.items()}
    assert not Attention().due(reports, mine, TIMEOUT, True, NOW)
    assert Attention().due(older, mine, TIMEOUT, True, NOW)
    assert Attention().longest_ns(older, NOW) == ns(6)


def test_a_report_that_is_replaced_or_gone_is_forgotten() -> None:
    attention = Attention()
    reports, _ = spread(4.0, ours_hangs)
    assert attention.longest_ns(reports, NOW) == ns(4)
    newer, _ = spread(1.0, ours_hangs)
    assert attention.longest_ns(newer, NOW) == ns(1)
    assert attention.longest_ns({"b": (reports["b"][0], NOW)}, NOW) == ns(4)


def test_nobody_lives_where_every_process_is_gone() -> None:
    reports, _ = spread(0.1, lambda job: another_dies(job))
    assert Attention().lives(reports)
    gone, _ = spread(0.1, _all_die)
    assert not Attention().lives(gone)


@pytest.mark.parametrize(
    ("complete", "late_ns", "pause_ns"),
    [
        (True, 0, 4 * PAUSE_NS_PER_RANK),
        (False, 0, 4 * INCOMPLETE_NS_PER_RANK),
        (True, LATE_NS, 4 * LATE_NS_PER_RANK),
        (False, LATE_NS, 6 * 4 * LATE_INCOMPLETE_NS_PER_RANK),
    ],
)
def test_looks_follow_each_other_with_a_pause(complete: bool, late_ns: int, pause_ns: int) -> None:
    attention = Attention()
    reports, _ = spread(20, all_wait)
    attention.late_ns = late_ns
    assert attention.rested(reports, complete, NOW) is complete
    attention.looked(complete, NOW)
    assert not attention.rested(reports, complete, NOW + pause_ns - 1)
    assert attention.rested(reports, complete, NOW + pause_ns)


def test_what_is_settled_is_looked_at_once_a_second() -> None:
    attention = Attention()
    reports, _ = spread(20, all_wait)
    attention.looked(True, NOW)
    assert not attention.rested(reports, True, NOW + SETTLED_LEAST_NS - 1, settled=True)
    assert attention.rested(reports, True, NOW + SETTLED_LEAST_NS, settled=True)


def test_the_first_look_at_complete_evidence_is_not_put_off() -> None:
    attention = Attention()
    reports, _ = spread(20, all_wait)
    attention.looked(False, NOW)
    assert not attention.rested(reports, False, NOW + 1)
    assert attention.rested(reports, True, NOW + 1)


def test_looks_wait_while_reports_of_other_nodes_arrive() -> None:
    attention = Attention()
    reports, _ = spread(20, all_wait)
    more = reports | {"c": reports["b"]}
    pause_ns = 4 * INCOMPLETE_NS_PER_RANK
    assert not attention.rested(reports, False, NOW)
    assert not attention.rested(more, False, NOW + pause_ns - 1)
    assert not attention.rested(more, False, NOW + pause_ns)
    assert attention.rested(more, False, NOW + 2 * pause_ns - 1)


def test_one_node_alone_is_looked_at_whenever_it_is_asked() -> None:
    attention = Attention()
    reports, _ = spread(20, all_wait)
    attention.looked(True, NOW)
    assert attention.rested({"b": reports["b"]}, True, NOW + 1)


def _all_die(job: Job) -> None:
    for rank in range(4):
        job.change(rank, process=ProcessView(ProcessStatus.GONE, 1, None, gone_age_ns=0))
