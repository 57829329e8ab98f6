"""A finding: what the rules conclude from one moment, before it becomes a verdict with a life.

``localize`` produces findings, ``lifecycle`` turns them into verdicts. A finding that is held back carries
the reason in ``held``; its ``hold`` says in which state it waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scoutd.agent.evidence import Phase
from scoutd.agent.verdict import (
    Action,
    Cause,
    Cleared,
    EvidenceItem,
    Implicated,
    Scope,
    State,
    Status,
    Symptom,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """``anchor`` names the event and is stable while it lasts; ``onset_age_ns``: time since the last sign
    of progress of the first implicated rank. ``hold`` is None for a fault, OPEN while the ranks are busy,
    SUPPRESSED where the alarm would have fired but is no fault."""

    cause: Cause
    status: Status
    scope: Scope
    summary: str
    action: Action
    anchor: str
    onset_age_ns: int
    implicated: tuple[Implicated, ...] = ()
    suspects: tuple[int, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    phase: Phase = Phase.NONE
    operation: str = ""
    peer_group: tuple[int, ...] = ()
    evidence: tuple[EvidenceItem, ...] = field(default=())
    symptom: Symptom = Symptom.HANG
    hold: State | None = None
    held: str = ""
    ending: bool = False
    """The ranks were judged by how they ended."""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(i.rank for i in self.implicated) or self.suspects

    @property
    def about(self) -> tuple[int, ...]:
        """The ranks by which the event is known. Which nodes a side without a majority misses may change
        while it lasts: that event has none."""
        return () if self.cause is Cause.NODE_UNREACHABLE and not self.implicated else self.ranks
