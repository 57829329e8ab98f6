"""Splits of an all_to_all that do not fit together: what i sends j, j must expect from i.

Splits legally differ between members, so the fingerprint leaves them out, and no backend compares them: a
receiver that gets more than it expects fails, though it may be innocent, and one that gets less computes on
with garbage. Every edge of the exchange has two witnesses, its sender and its receiver. Where they disagree
one of them is wrong, and one edge does not tell which. But a rank that is part of every disagreement, with
two partners or more who agree among themselves, is the one (C3 over edges, one edge one vote), and so is
one that contradicts itself about its own share; else the ranks are listed and nobody is implicated.

Evidence of finished calls is judged, too: nothing has to hang. Only the newest exchanges of a group are
compared, and only once all members have told theirs, unless ``partial`` is asked for (after a death).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scoutd.agent.census import census
from scoutd.agent.evidence import Call, CallState
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import cleared, implicate, ranks_text
from scoutd.agent.silence import phase_of
from scoutd.agent.snapshot import Rendezvous, Snapshot
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, Status, Symptom
from scoutd.agent.waitfor import build

NEWEST: Final = 4
"""Exchanges of a group that are looked at; older ones were looked at when they were new."""
MOST_EVIDENCE: Final = 16


@dataclass(frozen=True, slots=True)
class Edge:
    """One disagreement, in elements."""

    sender: int
    receiver: int
    sent: int
    expected: int

    def __str__(self) -> str:
        return f"rank {self.sender} sends {self.sent} to rank {self.receiver}, which expects {self.expected}"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """``unfinished``: some member is still inside, or its process ended there."""

    at: Rendezvous
    operation: str
    members: tuple[int, ...]
    edges: tuple[Edge, ...]
    unfinished: bool

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for edge in self.edges for rank in (edge.sender, edge.receiver)}))

    @property
    def culprit(self) -> int | None:
        """The rank that is part of every edge, where there is only one."""
        shared = set(self.ranks)
        for edge in self.edges:
            shared &= {edge.sender, edge.receiver}
        return shared.pop() if len(shared) == 1 else None


def find(snapshot: Snapshot, partial: bool = False) -> Disagreement | None:
    """The oldest disagreement; ``partial``: also where some members have told nothing."""
    return snapshot.once(_partial if partial else _whole, lasting=True)


def _whole(snapshot: Snapshot) -> Disagreement | None:
    return _find(snapshot, partial=False)


def _partial(snapshot: Snapshot) -> Disagreement | None:
    return _find(snapshot, partial=True)


def _find(snapshot: Snapshot, partial: bool) -> Disagreement | None:
    for at, calls in _exchanges(snapshot):
        facts = snapshot.groups.get(at[0])
        if facts is None or facts.members is None or len(calls) < 2:
            continue
        members = tuple(facts.members)
        told = len(calls) == len(members)
        if not told and not partial:
            continue
        if edges := tuple(_edges(members, calls)):
            operation = next(iter(calls.values())).fingerprint.operation
            unfinished = any(call.state is not CallState.DONE for call in calls.values())
            return Disagreement(at, operation, members, edges, unfinished or not told)
    return None


def _exchanges(snapshot: Snapshot) -> list[tuple[Rendezvous, dict[int, Call]]]:
    """The newest exchanges of every group, each with its members' calls, oldest first."""
    found: dict[int, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
    for rank, call in census(snapshot).exchanges:
        found[call.group][call.sequence][rank] = call
    return [
        ((group, sequence), places[sequence])
        for group, places in found.items()
        for sequence in sorted(places)[-NEWEST:]
    ]


def _edges(members: tuple[int, ...], calls: dict[int, Call]) -> Iterable[Edge]:
    """Disagreements between members whose splits are stored (of large groups the first)."""
    for i, sender in enumerate(members):
        sends = calls[sender].sends if sender in calls else ()
        for j, receiver in enumerate(members[: len(sends)]):
            receives = calls[receiver].receives if receiver in calls else ()
            sent, expected = sends[j], receives[i] if i < len(receives) else None
            if sent is not None and expected is not None and sent != expected:
                yield Edge(sender, receiver, sent, expected)


def finding(snapshot: Snapshot, found: Disagreement) -> Finding:
    """COLLECTIVE_MISMATCH of the rank in every disagreement, or of nobody."""
    culprit = found.culprit
    blamed = [] if culprit is None else [culprit]
    place = f"{found.operation} #{found.at[1]} of {snapshot.group_name(found.at[0])}"
    more = f" and {len(found.edges) - 3} more" if len(found.edges) > 3 else ""
    text = "; ".join(map(str, found.edges[:3])) + more
    who = f"{ranks_text(blamed or found.ranks)} split{'s' if blamed else ''}"
    first = snapshot.ranks[blamed[0] if blamed else found.ranks[0]]
    ages = [c.age_ns + snapshot.age_ns(r) for r in found.ranks if (c := snapshot.call_at(r, found.at))]
    return Finding(
        cause=Cause.COLLECTIVE_MISMATCH,
        status=Status.ATTRIBUTED if blamed else Status.INCONCLUSIVE,
        scope=Scope.RANK if blamed else Scope.GROUP,
        summary=f"{who} {place} differently from what the others expect — {text} (elements)",
        action=Action.FIX_PROGRAM,
        anchor=f"splits of group {found.at[0]:016x} sequence {found.at[1]}",
        onset_age_ns=max(ages, default=0),
        implicated=tuple(implicate(snapshot, r, text) for r in blamed),
        suspects=() if blamed else found.ranks,
        cleared=cleared(snapshot, build(snapshot, post_mortem=True), blamed),
        phase=phase_of(first),
        operation=place,
        symptom=Symptom.HANG if found.unfinished else Symptom.SDC,
        peer_group=found.members,
        evidence=(
            *(EvidenceItem(edge.sender, "splits", str(edge)) for edge in found.edges[:MOST_EVIDENCE]),
            EvidenceItem(None, "consensus", _verdict_of_edges(found)),
        ),
    )


def _verdict_of_edges(found: Disagreement) -> str:
    if found.culprit is None:
        return "C3 over edges: INCONCLUSIVE (no single rank is part of every disagreement)"
    return f"C3 over edges: ATTRIBUTED, rank {found.culprit} is part of every disagreement"
