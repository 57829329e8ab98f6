"""When silence is an alarm (design §4 "Silence").

A rank is silent while none of its coordinates, calls or counters moves. How long that is normal depends on
the *phase* (a checkpoint may take minutes) and on *activity*: a rank whose CPU time, I/O or stack keeps
moving is busy, and its limit is stretched by ``busy_factor``. An alarm that the plain stall timeout would
have raised and that phase or activity holds back is never dropped silently: it is a ``Hold`` with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from scoutd.agent.evidence import Activity, Phase, RankReport
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.snapshot import Snapshot

NOT_STARTED: Final = "before init_process_group"
"""Operation of a rank that others wait for inside that call and that has not come to it. While it is busy it
has the time of its phase (imports, downloads); where nothing of it moves, it hangs like anywhere else."""


class Level(str, Enum):
    """QUIET: no alarm. BUSY: past the timeout but active. LONG_PHASE: past the timeout in a phase with a
    longer limit. ALARM: past every limit."""

    QUIET = "QUIET"
    BUSY = "BUSY"
    LONG_PHASE = "LONG_PHASE"
    ALARM = "ALARM"


@dataclass(frozen=True, slots=True)
class Judgement:
    level: Level
    reason: str
    limit_ns: int


def judge(snapshot: Snapshot, rank: int, settings: Settings) -> Judgement:
    """The level of one rank's silence, and why the alarm is held back if it is."""
    report = snapshot.ranks[rank]
    silent = snapshot.silence_ns(rank)
    timeout = int(settings.stall_timeout_s * NS_PER_S)
    phase = phase_of(report)
    busy = busy_reason(report.activity, settings)
    limit = timeout if _never_comes(report, busy) else limit_ns(report, settings)
    stretched = int(limit * settings.busy_factor) if busy else limit
    if silent < timeout:
        return Judgement(Level.QUIET, "", stretched)
    if silent < limit:
        reason = f"phase {phase.value} may take {limit / NS_PER_S:g} s"
        return Judgement(Level.LONG_PHASE, reason, stretched)
    if silent < stretched:
        return Judgement(Level.BUSY, f"busy: {busy}", stretched)
    return Judgement(Level.ALARM, "", stretched)


def _never_comes(report: RankReport, busy: str) -> bool:
    """It has not started, and nothing of it moves, as far as anybody knows."""
    at = report.coordinate
    return at is not None and at.operation == NOT_STARTED and report.activity is not None and not busy


def phase_of(report: RankReport) -> Phase:
    coordinate = report.coordinate
    return coordinate.phase if coordinate is not None else Phase.NONE


def limit_ns(report: RankReport, settings: Settings) -> int:
    """The phase's own limit, at least the stall timeout."""
    limit = max(settings.stall_timeout_s, settings.phase_limits_s.get(phase_of(report), 0.0))
    coordinate = report.coordinate
    if coordinate is not None and coordinate.step == 0:
        limit = max(limit, settings.first_step_limit_s)
    return int(limit * NS_PER_S)


def busy_reason(activity: Activity | None, settings: Settings) -> str:
    """What moves in a silent rank, in words; empty if nothing does or nothing is known."""
    if activity is None:
        return ""
    if activity.io_bytes_per_s >= settings.busy_io_bytes_per_s:
        return f"reading or writing {_rate(activity.io_bytes_per_s)}"
    if activity.cpu_ratio >= settings.busy_cpu_ratio:
        return f"using {activity.cpu_ratio:.0%} of a core"
    return "its stack keeps moving" if activity.stack_moving else ""


def _rate(bytes_per_s: float) -> str:
    for unit in ("B/s", "kB/s", "MB/s"):
        if bytes_per_s < 1000:
            return f"{bytes_per_s:.1f} {unit}"
        bytes_per_s /= 1000
    return f"{bytes_per_s:.1f} GB/s"
