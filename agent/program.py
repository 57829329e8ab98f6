"""Findings about the program: its ranks do not make the same calls. Nothing is wrong with a machine.

COLLECTIVE_MISMATCH, COLLECTIVE_ORDER, COLLECTIVE_MISSING, and a process that ends before the others are done.
The rules are in ``mismatch``, ``order`` and ``missing``; here they become sentences.
"""

from __future__ import annotations

from collections.abc import Mapping

from scoutd.agent import mismatch, missing
from scoutd.agent.alignment import Shift
from scoutd.agent.consensus import Consensus
from scoutd.agent.evidence import Call
from scoutd.agent.finding import Finding
from scoutd.agent.missing import Missing
from scoutd.agent.narrative import (
    cleared,
    group_of,
    implicate,
    pending_text,
    rank_evidence,
    ranks_text,
    waiters_text,
)
from scoutd.agent.order import Cycle
from scoutd.agent.silence import phase_of
from scoutd.agent.snapshot import Rendezvous, Snapshot
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, Status
from scoutd.agent.waitfor import WaitGraph


def mismatch_finding(snapshot: Snapshot, graph: WaitGraph, found: mismatch.Mismatch) -> Finding:
    """COLLECTIVE_MISMATCH with both fingerprints; nobody implicated where C3 cannot judge."""
    ranks = list(found.minority)
    shifts = missing.shifts(snapshot, found)
    sides: dict[str, list[int]] = {}
    for rank, call in found.calls.items():
        sides.setdefault(mismatch.describe(call), []).append(rank)
    place = f"#{found.at[1]} of {snapshot.group_name(found.at[0])}"
    text = "; ".join(f"{ranks_text(r)}: {side}" for side, r in sorted(sides.items(), key=lambda s: len(s[1])))
    blamed = _blamed(ranks, shifts)
    first = snapshot.ranks[ranks[0] if ranks else min(found.calls)]
    return Finding(
        cause=Cause.COLLECTIVE_MISSING if shifts else Cause.COLLECTIVE_MISMATCH,
        status=found.consensus.status,
        scope=Scope.RANK if ranks else Scope.GROUP,
        summary=f"{blamed} in collective {place} — {text}",
        action=Action.FIX_PROGRAM,
        anchor=f"group {found.at[0]:016x} sequence {found.at[1]}",
        onset_age_ns=max(c.age_ns + snapshot.age_ns(r) for r, c in found.calls.items()),
        implicated=tuple(implicate(snapshot, r, _reason(found.calls[r], shifts.get(r))) for r in ranks),
        suspects=tuple(sorted(found.calls)),
        cleared=cleared(snapshot, graph, ranks),
        phase=phase_of(first),
        operation=mismatch.describe(found.calls[first.rank]),
        peer_group=found.members,
        evidence=(
            *(EvidenceItem(r, "fingerprint", mismatch.describe(c)) for r, c in sorted(found.calls.items())),
            *(EvidenceItem(r, "alignment", each.text) for r, each in sorted(shifts.items())),
            EvidenceItem(
                None,
                "consensus",
                f"C3 over fingerprints: {found.consensus.status.value}"
                + (f" ({found.consensus.reason})" if found.consensus.reason else ""),
            ),
        ),
    )


def _blamed(ranks: list[int], shifts: Mapping[int, Shift]) -> str:
    if not ranks:
        return "the members disagree"
    if not shifts:
        return f"{ranks_text(ranks)} called something else"
    return f"{ranks_text(ranks)} {shifts[ranks[0]].what} and is therefore at another call"


def _reason(call: Call, shift: Shift | None) -> str:
    called = f"called {mismatch.describe(call)}"
    return called if shift is None else f"{shift.what}: {shift.text}; {called}"


def exited_finding(snapshot: Snapshot, graph: WaitGraph, gone: tuple[int, ...]) -> Finding:
    """PROCESS_DEAD: these ranks ended without an error while others still wait for them."""
    report = snapshot.ranks[gone[0]]
    return Finding(
        cause=Cause.PROCESS_DEAD,
        status=Status.ATTRIBUTED,
        scope=Scope.RANK,
        summary=f"{ranks_text(gone)} ended (exit code 0) before the others were done"
        + waiters_text(graph, gone),
        action=Action.FIX_PROGRAM,
        anchor=f"exit of {sorted(gone)}",
        onset_age_ns=snapshot.gone_age_ns(gone[0]),
        implicated=tuple(implicate(snapshot, r, "exited while others wait for it") for r in gone),
        cleared=cleared(snapshot, graph, gone),
        phase=phase_of(report),
        operation=report.coordinate.operation if report.coordinate else "",
        peer_group=group_of(snapshot, graph, gone),
        evidence=tuple(e for r in gone for e in rank_evidence(snapshot, r)),
    )


def cycle_finding(snapshot: Snapshot, graph: WaitGraph, cycle: Cycle) -> Finding:
    """Why these ranks wait for each other: one has passed a collective by, or their orders differ."""
    gap = missing.passed(snapshot, graph, cycle.ranks)
    return order_finding(snapshot, graph, cycle) if gap is None else missing_finding(snapshot, graph, gap)


def order_finding(snapshot: Snapshot, graph: WaitGraph, cycle: Cycle) -> Finding:
    """COLLECTIVE_ORDER: these ranks wait for each other; the minority order is named if there is one."""
    named = cycle.minority
    if named:
        done = [at for at in cycle.places if snapshot.arrived(named[0], at)]
        other = next(at for at in cycle.places if at not in done)
        blamed = f"entered {_place_text(snapshot, done[0])} before {_place_text(snapshot, other)}"
        summary = f"{ranks_text(named)} {blamed}, the others the other way round; they wait for each other"
    else:
        calls = "; ".join(f"rank {r}: {pending_text(snapshot, r)}" for r in cycle.ranks[:8])
        summary = f"{ranks_text(cycle.ranks)} wait for each other, nobody is named — {calls}"
        blamed = ""
    first = snapshot.ranks[named[0] if named else cycle.ranks[0]]
    consensus = [] if cycle.consensus is None else [_consensus("orders", cycle.consensus)]
    return Finding(
        cause=Cause.COLLECTIVE_ORDER,
        status=Status.ATTRIBUTED if named else Status.INCONCLUSIVE,
        scope=Scope.RANK if named else Scope.GROUP,
        summary=summary,
        action=Action.FIX_PROGRAM,
        anchor=f"cycle {cycle.ranks} {cycle.places}",
        onset_age_ns=max(snapshot.silence_ns(r) for r in cycle.ranks),
        implicated=tuple(implicate(snapshot, r, blamed) for r in named),
        suspects=cycle.ranks,
        cleared=cleared(snapshot, graph, named or cycle.ranks),
        phase=phase_of(first),
        operation=pending_text(snapshot, first.rank),
        peer_group=cycle.ranks,
        evidence=(*(e for r in cycle.ranks[:16] for e in rank_evidence(snapshot, r)), *consensus),
    )


def missing_finding(snapshot: Snapshot, graph: WaitGraph, found: Missing) -> Finding:
    """COLLECTIVE_MISSING: a rank left without a collective that the others made, or made one more."""
    place = _place_text(snapshot, found.place.at)
    named = found.minority
    absent = frozenset(found.place.absent)
    waiting = [r for r in found.members if r not in absent]
    if not named:
        what = f"{ranks_text(waiting)} wait in {place}, {ranks_text(found.place.absent)} ended without it"
    elif found.added and found.passed:
        what = f"{ranks_text(named)} waits in {place}, which all others have passed by"
    elif found.passed:
        what = (
            f"{ranks_text(named)} went on to a later step without {place}, where {ranks_text(waiting)} wait"
        )
    elif found.added:
        what = f"{ranks_text(named)} waits in {place}, which nobody else made: all others are done"
    else:
        what = f"{ranks_text(named)} ended without {place}, in which {ranks_text(waiting)} wait"
    first = snapshot.ranks[named[0] if named else found.members[0]]
    return Finding(
        cause=Cause.COLLECTIVE_MISSING,
        status=found.consensus.status,
        scope=Scope.RANK if named else Scope.GROUP,
        summary=what,
        action=Action.FIX_PROGRAM,
        anchor=f"group {found.place.at[0]:016x} sequence {found.place.at[1]}",
        onset_age_ns=max(snapshot.silence_ns(r) for r in waiting if r in snapshot.ranks),
        implicated=tuple(
            implicate(snapshot, r, f"{'made' if found.added else 'did not make'} {place}") for r in named
        ),
        suspects=found.members,
        cleared=cleared(snapshot, graph, named),
        phase=phase_of(first),
        operation=first.coordinate.operation if first.coordinate else "",
        peer_group=found.members,
        evidence=(
            *(e for r in named for e in rank_evidence(snapshot, r)),
            _consensus("who entered the collective", found.consensus),
        ),
    )


def _place_text(snapshot: Snapshot, at: Rendezvous) -> str:
    calls = (snapshot.call_at(r, at) for r in snapshot.ranks)
    operation = next((c.fingerprint.operation for c in calls if c is not None), "collective")
    return f"{operation} #{at[1]} of {snapshot.group_name(at[0])}"


def _consensus(over: str, result: Consensus) -> EvidenceItem:
    reason = f" ({result.reason})" if result.reason else ""
    return EvidenceItem(None, "consensus", f"C3 over {over}: {result.status.value}{reason}")
