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
from scoutd.agent.waitfor import Place, WaitGraph

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
    inside = set(ranks)
    places = [
        place
        for place in graph.places.values()
        if place.blocked & inside and inside.intersection(place.absent)
    ]
    undecided = Cycle(ranks, (), (), None)
    for one, other in combinations(places[:MOST_PLACES], 2):
        if not _crossed(one, other, inside):
            continue
        members, consensus = _orders(snapshot, one, other)
        minority = tuple(m for m, out in zip(members, consensus.outliers, strict=True) if out)
        cycle = Cycle(ranks, minority, (one.at, other.at), consensus)
        if consensus.status is Status.ATTRIBUTED:
            return cycle
        undecided = cycle
    return undecided


def _crossed(one: Place, other: Place, inside: set[int]) -> bool:
    """Some rank is at ``one`` and absent at ``other``, and another the other way round."""
    forward = one.blocked & inside & set(other.absent)
    backward = other.blocked & inside & set(one.absent)
    return bool(forward and backward)


def _orders(snapshot: Snapshot, one: Place, other: Place) -> tuple[list[int], Consensus]:
    first, second = snapshot.groups[one.at[0]].members, snapshot.groups[other.at[0]].members
    both = [rank for rank in first or () if second is not None and rank in second]
    return both, exact([_order(snapshot, rank, one.at, other.at) for rank in both])


def _order(snapshot: Snapshot, rank: int, one: Rendezvous, other: Rendezvous) -> Rendezvous | None:
    came = snapshot.arrived(rank, one), snapshot.arrived(rank, other)
    if came == (True, False):
        return one
    return other if came == (False, True) else None
