"""Ranks that wait for each other (design §4 d): a cycle of blocking edges has no root.

A cycle comes from ranks that entered two collectives (or made two transfers) in different orders. For two
places of a cycle, every rank that belongs to both groups has an order: it is at the one and has not come to
the other. Exact C3 over these orders names the minority; ranks of only one of the groups have no say. Where
there is no minority (two ranks that both send first, a tie) the cycle is reported and nobody is blamed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

from scoutd.agent.components import Node, components
from scoutd.agent.consensus import Consensus, exact
from scoutd.agent.snapshot import Rendezvous, Snapshot
from scoutd.agent.verdict import Status
from scoutd.agent.waitfor import WaitGraph

MOST_PLACES: Final = 64
"""Places of one cycle that are compared pairwise."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """``places``: the two that were compared, empty for a cycle of transfers."""

    ranks: tuple[int, ...]
    minority: tuple[int, ...]
    places: tuple[Rendezvous, ...]
    consensus: Consensus | None


def find(snapshot: Snapshot, graph: WaitGraph) -> list[Cycle]:
    """Every cycle, those with a minority first."""
    edges = _edges(graph)
    found = []
    for component in components(edges):
        ranks = tuple(sorted(node[1] for node in component if node[0] == "rank" and isinstance(node[1], int)))
        if len(ranks) > 1:
            found.append(_judge(snapshot, graph, ranks))
    return sorted(found, key=lambda cycle: (not cycle.minority, cycle.ranks))


def _edges(graph: WaitGraph) -> dict[Node, list[Node]]:
    edges: dict[Node, list[Node]] = {}
    for at, place in graph.places.items():
        if place.complete:
            continue
        edges[("place", at)] = [("rank", rank) for rank in place.absent]
        for rank in place.blocked:
            edges.setdefault(("rank", rank), []).append(("place", at))
    for rank, peers in graph.peers.items():
        edges.setdefault(("rank", rank), []).extend(("rank", peer) for peer in peers)
    return edges


def _judge(snapshot: Snapshot, graph: WaitGraph, ranks: tuple[int, ...]) -> Cycle:
    inside = frozenset(ranks)
    sides = [_Side(p.at, p.blocked & inside, inside.intersection(p.absent)) for p in graph.places.values()]
    sides = [side for side in sides if side.here and side.absent]
    undecided = Cycle(ranks, (), (), None)
    for one, other in combinations(sides[:MOST_PLACES], 2):
        if one.here.isdisjoint(other.absent) or other.here.isdisjoint(one.absent):
            continue
        members, consensus = _orders(snapshot, one, other)
        minority = tuple(m for m, out in zip(members, consensus.outliers, strict=True) if out)
        cycle = Cycle(ranks, minority, (one.at, other.at), consensus)
        if consensus.status is Status.ATTRIBUTED:
            return cycle
        undecided = cycle
    return undecided


@dataclass(frozen=True, slots=True)
class _Side:
    """A place of a cycle: which of its ranks are there, and which have not come."""

    at: Rendezvous
    here: frozenset[int]
    absent: frozenset[int]


def _orders(snapshot: Snapshot, one: _Side, other: _Side) -> tuple[list[int], Consensus]:
    first, second = snapshot.groups[one.at[0]].members, snapshot.groups[other.at[0]].members
    others = frozenset(second or ())
    both = [rank for rank in first or () if rank in others]
    return both, exact([_order(snapshot, rank, one.at, other.at) for rank in both])


def _order(snapshot: Snapshot, rank: int, one: Rendezvous, other: Rendezvous) -> Rendezvous | None:
    came = snapshot.arrived(rank, one), snapshot.arrived(rank, other)
    if came == (True, False):
        return one
    return other if came == (False, True) else None
