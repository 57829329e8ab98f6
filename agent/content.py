"""What a report says apart from ages: equal content needs no new version.

A hung job's reports differ from one look to the next only in their ages, which every reader adds himself.
A version is therefore published only when the content changes; numbers that never rest (CPU, I/O) count, and
are published, in coarse steps, and only of ranks that may be at work: what a rank does while its host waits
for others (it spins, or sleeps) is nobody's question.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace

from scoutd.agent.evidence import Activity, NodeReport, RankReport
from scoutd.agent.waitfor import host_waits


def content(report: NodeReport, heartbeat_limit_ns: int) -> Hashable:
    """Equal for two reports of one node that say the same."""
    ranks = tuple(_rank(r, heartbeat_limit_ns) for r in report.ranks)
    return (report.job, report.generation, ranks, tuple(death.rank for death in report.seen))


def _rank(r: RankReport, heartbeat_limit_ns: int) -> Hashable:
    heartbeat = r.heartbeat_age_ns
    return (
        r.rank,
        r.pid,
        r.observed,
        (r.process.status, r.process.exit_code, r.process.signal, r.process.oom),
        tuple((c.ordinal, c.waiting, c.phase, c.operation) for c in r.coordinates),
        heartbeat is not None and heartbeat > heartbeat_limit_ns,
        tuple((c.group, c.sequence, c.kind, c.state, c.waiting, c.fingerprint) for c in r.calls),
        tuple((g.group, g.enqueued, g.retired, g.history) for g in r.groups),
        tuple((n.kind, n.message, n.location) for n in r.notes),
        _activity(r),
        (r.stack.frames, r.stack.waits, r.stack.refused) if r.stack is not None else None,
        tuple(replay.round for replay in r.replays),
    )


def rounded(report: NodeReport) -> NodeReport:
    """The same report with its activity in coarse steps (5 % of a core, one significant digit of bytes), and
    without that of ranks whose host waits."""
    return replace(report, ranks=tuple(_rounded(r) for r in report.ranks))


def _rounded(r: RankReport) -> RankReport:
    if r.activity is None:
        return r
    kept = _activity(r)
    return replace(r, activity=None if kept is None else Activity(0, *kept))


def _activity(r: RankReport) -> tuple[float, float, bool | None] | None:
    a = r.activity
    if a is None or host_waits(r):
        return None
    return round(a.cpu_ratio * 20) / 20, _one_digit(a.io_bytes_per_s), a.stack_moving


def _one_digit(value: float) -> float:
    if value < 1:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(value))
    return math.floor(value / unit) * unit
