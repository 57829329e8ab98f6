"""The knobs of the core, each with its meaning; the daemon's configuration fills them in.

Seconds here, nanoseconds inside the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scoutd.agent.evidence import Phase

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """``stall_timeout_s`` is the limit of silence in every phase that has none of its own.

    ``phase_limits_s``: limits for phases in which long silence is normal. A limit below the stall timeout
    is raised to it. ``first_step_limit_s`` holds until a rank's second step begins (lazy initialisation,
    first compile, caches), ``busy_factor`` stretches the limit of a rank whose CPU, I/O or stack moves.
    ``settle_s``: how long deaths are collected before the first of them is judged; a launcher kills the
    rest within 0.1 s. ``heartbeat_limit_s``: a heartbeat older than this is silent. ``busy_cpu_ratio`` and
    ``busy_io_bytes_per_s``: what counts as activity. ``max_gap_s``: a longer pause between two ticks means
    that the agent itself stood still, and no rank is charged with that time.
    """

    stall_timeout_s: float = 30.0
    phase_limits_s: dict[Phase, float] = field(
        default_factory=lambda: {
            Phase.INIT: 300.0,
            Phase.CHECKPOINT: 600.0,
            Phase.COMPILE: 600.0,
            Phase.EVAL: 600.0,
            Phase.EXITING: 60.0,
        }
    )
    first_step_limit_s: float = 0.0
    busy_factor: float = 4.0
    busy_cpu_ratio: float = 0.25
    busy_io_bytes_per_s: float = 4096.0
    heartbeat_limit_s: float = 5.0
    settle_s: float = 1.0
    max_gap_s: float = 2.0
    history: int = 256
    """Closed verdicts kept in memory."""
