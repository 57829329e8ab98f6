"""What a verdict was decided on, so that it can be decided again: on another machine, by another build.

A moment holds every report with its age, what was known of other nodes, the limits in force and the verdicts
that were open. The rules are functions of that alone: the same moment gives the same verdict, id included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scoutd.agent.evidence import NodeReport
from scoutd.agent.lifecycle import Known, Ledger
from scoutd.agent.localize import localize
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.snapshot import snapshot
from scoutd.agent.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Moment:
    """``reports`` with their ages in ns; ``known``: what the ledger held before the decision.
    ``quiet``: how long ago a node was heard of, in ns."""

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


def judge_again(moment: Moment, now_ns: int) -> tuple[Verdict, ...]:
    """The verdicts that this moment gives, those that it opens or changes."""
    limit = int(moment.settings.heartbeat_limit_s * NS_PER_S)
    reach = (moment.unreachable, moment.majority, moment.stale, moment.quiet)
    seen = snapshot(moment.reports, limit, moment.paused, *reach)
    diagnosis = localize(seen, moment.settings, moment.judge_deaths)
    ledger = Ledger(moment.settings.history)
    ledger.resume(moment.known, now_ns)
    reports = ledger.update(diagnosis.findings, seen, moment.job, moment.generation, now_ns)
    return tuple({verdict.id: verdict for verdict in reports}.values())
