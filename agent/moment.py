"""What a verdict was decided on, so that it can be decided again: on another machine, by another build.

A moment holds every report with its age, what was known of other nodes, the limits in force and the verdicts
that were open; ``again`` judges it. A moment of replays holds the rounds that a verdict was decided on, in
its reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scoutd.agent.evidence import NodeReport
from scoutd.agent.known import Known
from scoutd.agent.settings import Settings


@dataclass(frozen=True, slots=True)
class Moment:
    """``reports`` with their ages in ns; ``known``: what the ledger held before the decision.
    ``quiet``: how long ago a node was heard of, in ns. ``replays``: it is about the replays in the reports,
    and not about what ranks wait for."""

    job: str
    generation: int
    reports: tuple[tuple[NodeReport, int], ...]
    paused: tuple[tuple[int, int], ...]
    unreachable: frozenset[str]
    majority: bool
    stale: frozenset[str]
    judge_deaths: bool
    settings: Settings
    known: tuple[Known, ...] = ()
    quiet: Mapping[str, int] = field(default_factory=dict)
    replays: bool = False
