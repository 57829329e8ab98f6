"""Roots that are stuck behind others: waits inside calls at which everybody has arrived.

A rank can sit in a collective that all members entered, or in a transfer that its peer has made, and still
get no further: some member's device is held up by an earlier call, for which yet another rank is late. That
is how a stall travels down a pipeline whose hosts run ahead of their devices. Such a call is no blocking
edge, and a rank whom others wait for elsewhere would be a root. If its waits lead to another root, it is
only behind that one.

Waits lead from a rank through a complete place to the members that have not left it, through a transfer to
its peer, and through every other place to those who are absent. Roots that lead to each other are equals, and
all of them stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from scoutd.agent.components import Node, components
from scoutd.agent.evidence import CallKind, CallState, RankReport
from scoutd.agent.snapshot import Rendezvous

if TYPE_CHECKING:
    from scoutd.agent.waitfor import Place


def behind(
    ranks: Mapping[int, RankReport], places: Mapping[Rendezvous, Place], roots: Collection[int]
) -> frozenset[int]:
    """The roots that wait, through complete places and transfers too, for another root."""
    if len(roots) < 2 or not any(_awaited(ranks[r]) for r in roots):
        return frozenset()
    edges = _edges(ranks, places)
    suspects: set[Node] = {("rank", r) for r in roots}
    leading: set[Node] = set()
    found: set[Node] = set()
    for component in components(edges):
        inside = set(component)
        leads = any(t in leading for node in component for t in edges.get(node, ()) if t not in inside)
        if leads:
            found |= inside & suspects
        if leads or inside & suspects:
            leading |= inside
    return frozenset(r for r in roots if ("rank", r) in found)


def _awaited(report: RankReport) -> list[Node]:
    """Where the rank's host waits: places, and peers of transfers."""
    calls = [c for c in report.calls if c.waiting and c.state is CallState.PENDING]
    places: list[Node] = [("place", (c.group, c.sequence)) for c in calls if c.kind is CallKind.COLLECTIVE]
    return places + [("rank", c.peer) for c in calls if c.peer is not None]


def _edges(ranks: Mapping[int, RankReport], places: Mapping[Rendezvous, Place]) -> dict[Node, list[Node]]:
    edges: dict[Node, list[Node]] = {("rank", rank): _awaited(report) for rank, report in ranks.items()}
    for at, place in places.items():
        late = place.arrived if place.complete else (*place.absent, *place.unknown)
        edges[("place", at)] = [("rank", rank) for rank in late]
    return edges
