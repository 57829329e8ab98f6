"""What the outside world tells the core (events) and what the core asks of it (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scoutd.agent.evidence import NodeReport
from scoutd.agent.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Observed:
    """A new report about this node's own ranks."""

    report: NodeReport


@dataclass(frozen=True, slots=True)
class Evidence:
    """The replicated map as it stands: every node's newest report with its age in ns, this node's own
    included, so that all agents judge the same words. ``unreachable``: nodes that nobody reaches.
    ``stale``: nodes in reach whose newest report is not here, or of which nothing was heard lately.
    ``majority``: more than half of all known nodes are neither. ``oldest_ns``: every node in reach, the
    stale ones apart, has been heard of within this time. ``quiet_ns``: how long ago a node was heard of; one
    that is not in it is heard of now."""

    reports: tuple[tuple[NodeReport, int], ...]
    unreachable: frozenset[str]
    majority: bool
    stale: frozenset[str] = frozenset()
    oldest_ns: int = 0
    quiet_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. The daemon ticks after every observation, at least four times a second."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """The job is over (its launcher exited) or the agent stops: decide what can be decided now."""


@dataclass(frozen=True, slots=True)
class Report:
    """Effect: this verdict was opened or changed its state or content."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CaptureStack:
    """Effect: capture the stack of a local rank (``native``: with C frames, which pauses the process for
    about a second; asked only where the graph is ambiguous without it). The result comes back in the
    rank's next report."""

    rank: int
    native: bool


@dataclass(frozen=True, slots=True)
class SampleActivity:
    """Effect: the operating system's view (CPU, I/O, stack) of these ranks is wanted in their reports
    from now on; an empty tuple ends it."""

    ranks: tuple[int, ...]


Event = Observed | Evidence | Tick | Conclude
Effect = Report | CaptureStack | SampleActivity
