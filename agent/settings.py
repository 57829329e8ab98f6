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
    round_s: float = 1.0
    """How long a fault that names a rank waits for evidence of nodes that are in reach."""
    replay_round_s: float = 30.0
    """How long a replay round waits for results that are missing. Peers are a step apart at most; the rest is
    for a step that lasts long and for what other agents have not told yet."""
    history: int = 256
    """Closed verdicts kept in memory."""


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """The knobs of the exchange between agents; every formula stands beside its knob.

    ``probe_interval_s``: one probe to one peer per interval, and per two of them while nobody is new and
    nothing is wrong, whatever the cluster's size: idle traffic is about (700 + 80·piggyback) bytes each way
    per interval, headers and acknowledgements included. ``piggyback``: marks beside the sender's own in a
    probe. ``sync_interval_s``, ``fanout``: under suspicion, push-pull with ``fanout`` partners per
    interval; evidence reaches all N in about log2(N)/log2(1 + fanout) + 2 intervals.
    ``partners``: peers that an agent talks to by turns; each costs a connection, and in a random graph of
    this degree news spreads as in the complete one. ``alarm_hold_s``: how long the exchange goes on after the
    last sign of suspicion.
    ``k_sigma``: a probe is lost after T = H + k·σ of the measured round trips, between
    ``least_timeout_s`` and ``most_timeout_s``. ``relays``: peers asked to confirm that a node is out of
    reach; one false alarm needs 1 + relays losses. ``quiet_rounds``: under suspicion a node is probed
    directly when its beat has not grown for (log2 N + quiet_rounds) sync intervals. ``in_flight``: most
    requests that are under way at once.
    """

    probe_interval_s: float = 1.0
    piggyback: int = 4
    sync_interval_s: float = 0.15
    fanout: int = 2
    partners: int = 8
    alarm_hold_s: float = 5.0
    k_sigma: float = 4.0
    least_timeout_s: float = 0.3
    most_timeout_s: float = 2.0
    relays: int = 3
    quiet_rounds: int = 3
    in_flight: int = 16
