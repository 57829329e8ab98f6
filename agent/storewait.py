"""Waits for a key of the store: for whom is nowhere written, but peers that did the same tell who is late.

Where more than half of all ranks wait in the same store operation (its number among the rank's own, or the
same key), a rank that has not come to it and waits for nobody is the one that they wait for: it is named, and
judged by phase and activity as any root of the graph is. Otherwise the ranks that have not come are suspects.
Who has passed the operation, or waits in a collective for somebody, is a victim.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from scoutd.agent import silence
from scoutd.agent.evidence import Call, CallKind, CallState, RankReport
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import (
    MOST_WAITS,
    cleared,
    implicate,
    nodes_text,
    rank_evidence,
    ranks_text,
    where,
)
from scoutd.agent.settings import Settings
from scoutd.agent.silence import Level, phase_of
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Action, Cause, Scope, State, Status
from scoutd.agent.waitfor import WaitGraph

HOLDS: Final = {Level.LONG_PHASE: State.SUPPRESSED, Level.BUSY: State.OPEN, Level.ALARM: None}


@dataclass(frozen=True, slots=True)
class Late:
    """``ranks`` have not come to the store operation ``call`` in which ``waiting`` are. ``named``: more than
    half of the job are in the same one."""

    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    call: Call
    named: bool


def find(snapshot: Snapshot, graph: WaitGraph) -> Late | None:
    """The ranks that peers in a store operation are ahead of; None where none stands still outside a wait."""
    inside = {r: c for r in graph.excused if (c := _pending(snapshot.ranks.get(r))) is not None}
    if not inside:
        return None
    first = min(inside.values(), key=lambda c: c.sequence)
    keys = {c.fingerprint.argument for c in inside.values()}
    late = tuple(
        rank
        for rank, report in sorted(snapshot.ranks.items())
        if rank not in inside
        and report.observed
        and snapshot.alive(rank)
        and rank not in snapshot.unheard
        and rank not in graph.blocked
        and not _passed(report, first.sequence, keys)
    )
    if not late:
        return None
    numbers = Counter(c.sequence for c in inside.values())
    names = Counter(c.fingerprint.argument for c in inside.values())
    together = max(*numbers.values(), *names.values())
    return Late(late, tuple(sorted(inside)), first, 2 * together > snapshot.world_size)


def _pending(report: RankReport | None) -> Call | None:
    calls = (c for c in report.calls if c.kind is CallKind.STORE) if report is not None else ()
    return next((c for c in calls if c.waiting and c.state is CallState.PENDING), None)


def _passed(report: RankReport, sequence: int, keys: set[str | None]) -> bool:
    """The rank has been in that operation: in as many as its peers, or in one on the same key."""
    calls = [c for c in report.calls if c.kind is CallKind.STORE]
    return any(c.sequence >= sequence or c.fingerprint.argument in keys for c in calls)


def finding(snapshot: Snapshot, graph: WaitGraph, late: Late, settings: Settings) -> Finding | None:
    """STORE_WAIT of the late ranks, held back while one of them is busy or in a long phase; None while one
    of them has not been silent for long."""
    judged = {r: silence.judge(snapshot, r, settings) for r in late.ranks}
    if late.named and any(j.level is Level.QUIET for j in judged.values()):
        return None
    least = min(judged.values(), key=lambda j: list(Level).index(j.level))
    named = late.ranks if late.named else ()
    waiting = frozenset(late.waiting)
    operation = f"{late.call.fingerprint.operation} {late.call.fingerprint.argument or ''}".strip()
    first = snapshot.ranks[late.ranks[0]]
    verb = "have" if len(late.ranks) > 1 else "has"
    wait = "wait" if len(late.waiting) > 1 else "waits"
    who = f"{ranks_text(late.ranks)}{nodes_text(snapshot, late.ranks)} {verb}"
    place = f"{'it is' if len(late.ranks) == 1 else 'the first is'} in {where(first)}"
    return Finding(
        cause=Cause.STORE_WAIT,
        status=Status.ATTRIBUTED if named else Status.INCONCLUSIVE,
        scope=Scope.RANK if named else Scope.GROUP,
        summary=f"{who} not come to {operation}, in which {ranks_text(late.waiting)} {wait}; {place}"
        + ("" if named else "; nobody is named"),
        action=Action.RESTART_IN_PLACE if named else Action.OBSERVE,
        anchor=f"store operation {late.call.sequence} {late.call.fingerprint.argument}",
        onset_age_ns=snapshot.silence_ns(late.ranks[0]),
        implicated=tuple(
            implicate(snapshot, r, f"in {where(snapshot.ranks[r])}; has not come to {operation}")
            for r in named
        ),
        suspects=late.ranks,
        cleared=tuple(
            each._replace(waits_for=named[:MOST_WAITS]) if each.rank in waiting else each
            for each in cleared(snapshot, graph, late.ranks)
        ),
        phase=phase_of(first),
        operation=first.coordinate.operation if first.coordinate else "",
        peer_group=snapshot.numbers,
        evidence=tuple(e for r in (*late.ranks, *late.waiting[:8]) for e in rank_evidence(snapshot, r)),
        hold=HOLDS.get(least.level) if named else None,
        held=least.reason if named else "",
    )
