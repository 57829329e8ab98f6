"""Roots that are held up themselves: waits inside calls at which everybody has arrived.

A rank can sit in a collective that all members entered, or in a transfer that its peer has made, and still
get no further: some member's device is held up by an earlier call, for which yet another rank is late. That
is how a stall travels down a pipeline whose hosts run ahead of their devices. Such a call is no blocking
edge, and a rank whom others wait for elsewhere would be a root.

Waits lead from a rank through a complete place to the members that have not left it, through a transfer to
its peer, and through every other place to those who are absent. A root that sits in such a call stays a root
only if its waits lead to no other root, and lead back to itself through somebody for whom it is late. If
nobody there is late, the call itself is stuck, and that is a matter of devices and transport (``device``).
Roots that wait for nothing at all always stay.
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
    ranks: Mapping[int, RankReport],
    places: Mapping[Rendezvous, Place],
    unmet: Mapping[int, Collection[int]],
    roots: Collection[int],
) -> frozenset[int]:
    """The roots that are held up by others. ``unmet``: transfers to peers who have not made theirs."""
    held = {("rank", r) for r in roots if _awaited(ranks[r])}
    if not held:
        return frozenset()
    edges = _edges(ranks, places)
    suspects: set[Node] = {("rank", r) for r in roots}
    late = _late(places, unmet)
    leading: set[Node] = set()
    found: set[Node] = set()
    for component in components(edges):
        inside = set(component)
        here = inside & suspects
        leads = any(t in leading for node in component for t in edges.get(node, ()) if t not in inside)
        if leads or len(here) > 1 or not any(node[1] in late.get(n, ()) for node in here for n in component):
            found |= here & held
        if leads or here:
            leading |= inside
    return frozenset(r for r in roots if ("rank", r) in found)


def _late(
    places: Mapping[Rendezvous, Place], unmet: Mapping[int, Collection[int]]
) -> dict[Node, Collection[int]]:
    """The ranks that are waited for to come, by who waits: a place, or a rank in a transfer."""
    found: dict[Node, Collection[int]] = {("place", at): place.absent for at, place in places.items()}
    found.update((("rank", rank), peers) for rank, peers in unmet.items())
    return found


def leads_to(
    ranks: Mapping[int, RankReport], places: Mapping[Rendezvous, Place], targets: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """For each rank the targets that it waits for in the end, over however many others."""
    back: dict[Node, list[Node]] = {}
    for node, nexts in _edges(ranks, places).items():
        for each in nexts:
            back.setdefault(each, []).append(node)
    found: dict[int, list[int]] = {}
    for target in sorted(targets):
        seen: set[Node] = {("rank", target)}
        todo: list[Node] = [("rank", target)]
        while todo:
            fresh = [node for node in back.get(todo.pop(), ()) if node not in seen]
            seen.update(fresh)
            todo.extend(fresh)
        for rank in ranks:
            if rank != target and ("rank", rank) in seen:
                found.setdefault(rank, []).append(target)
    return {rank: tuple(reached) for rank, reached in found.items()}


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
