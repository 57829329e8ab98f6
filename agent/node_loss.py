"""A node that nobody reaches, while its ranks are waited for (design §4, partition rules).

An agent that died is not a dead node: as long as the job moves, nothing is said. Once the job stands still,
the ranks of unreachable nodes are *unknown* at the places where others wait. If nobody else is absent there,
the node explains the stall: NODE_UNREACHABLE. Waits and broken connections are the training's own evidence
that the node is gone (REPLACE_NODE); without them the network is to be looked at (DIAGNOSE_NETWORK). A side
of a partition with at most half of the nodes names nobody: the others may be fine and blame this side. Where
nobody waits there is no partition: the others have finished, and their agents with them.
"""

from __future__ import annotations

from scoutd.agent.census import census
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import cleared, implicate, ranks_text, waiters_text
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, Status, Symptom
from scoutd.agent.waitfor import WaitGraph


def awaited(snapshot: Snapshot, graph: WaitGraph) -> tuple[int, ...]:
    """Ranks of unreachable nodes that somebody waits for."""
    unknown = {rank for place in graph.places.values() for rank in (*place.unknown, *place.absent)}
    return tuple(sorted(unknown & snapshot.lost))


def finding(snapshot: Snapshot, graph: WaitGraph, ranks: tuple[int, ...]) -> Finding:
    """NODE_UNREACHABLE for the nodes of these ranks."""
    nodes = sorted({snapshot.nodes[r] for r in ranks})
    everyone = tuple(sorted(r for r in snapshot.lost if snapshot.nodes[r] in nodes))
    waits = waiters_text(graph, everyone)
    broken = any(report.notes for report in census(snapshot).ended)
    return Finding(
        cause=Cause.NODE_UNREACHABLE,
        status=Status.ATTRIBUTED,
        scope=Scope.NODE,
        summary=f"{_nodes_text(nodes)} with {ranks_text(everyone)} cannot be reached by any agent{waits}",
        action=Action.REPLACE_NODE if waits or broken else Action.DIAGNOSE_NETWORK,
        anchor=f"unreachable {nodes}",
        onset_age_ns=_onset_age_ns(snapshot, graph, everyone),
        implicated=tuple(
            implicate(snapshot, r, f"{snapshot.nodes[r]} cannot be reached by any agent") for r in everyone
        ),
        cleared=cleared(snapshot, graph, (*everyone, *graph.roots)),
        peer_group=snapshot.numbers,
        evidence=(_reach(snapshot),),
        symptom=Symptom.NODE_LOSS,
    )


def minority(snapshot: Snapshot, graph: WaitGraph) -> Finding:
    """This side has at most half of the nodes: it says what is missing and names nobody."""
    nodes = sorted(snapshot.unreachable)
    return Finding(
        cause=Cause.NODE_UNREACHABLE,
        status=Status.INCONCLUSIVE,
        scope=Scope.JOB,
        summary=f"{_nodes_text(nodes)} cannot be reached, and this side has at most half of the nodes: "
        "nobody is named",
        action=Action.DIAGNOSE_NETWORK,
        anchor="no majority",
        onset_age_ns=max((snapshot.silence_ns(r) for r in snapshot.ranks), default=0),
        suspects=tuple(sorted(snapshot.lost)),
        cleared=cleared(snapshot, graph, tuple(sorted(snapshot.lost))),
        peer_group=snapshot.numbers,
        evidence=(_reach(snapshot),),
        symptom=Symptom.NODE_LOSS,
    )


def _onset_age_ns(snapshot: Snapshot, graph: WaitGraph, lost: tuple[int, ...]) -> int:
    """The longest silence of the lost ranks, as far as it was heard, and of those who wait for them."""
    return max((snapshot.silence_ns(r) for r in (*lost, *graph.waiting_for(lost))), default=0)


def _nodes_text(nodes: list[str]) -> str:
    return f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(nodes)}"


def _reach(snapshot: Snapshot) -> EvidenceItem:
    seen = sorted({n for r, n in snapshot.nodes.items() if r not in snapshot.unplaced} - snapshot.unreachable)
    text = f"in reach: {', '.join(seen[:16])}{' …' if len(seen) > 16 else ''}"
    return EvidenceItem(None, "reachability", f"{text}; not: {', '.join(sorted(snapshot.unreachable)[:16])}")
