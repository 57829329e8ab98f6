"""Everybody has arrived, and still nobody goes on (design §4 e): device or transport.

At a *complete* place every member has enqueued (group, sequence). Of a symmetric collective all members
finish at about the same time, so where some have long retired it and others have not, the others' devices
are stuck: DEVICE_STALL of each. If those laggards are a contiguous run of two or more in ring order (a lost
hop starves everyone downstream), or nobody has retired it, it is the transport: GROUP_STALL with suspects,
and nobody is implicated. Ranks whose counters are stale say nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scoutd.agent.evidence import CallState
from scoutd.agent.snapshot import Rendezvous, Snapshot
from scoutd.agent.waitfor import Place, WaitGraph

SYMMETRIC: Final = frozenset(
    {
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "barrier",
    }
)


@dataclass(frozen=True, slots=True)
class Stuck:
    """A complete place that nobody leaves. ``devices``: ranks whose device is stuck, empty for a group
    stall; ``suspects``: the laggards of a group stall."""

    at: Rendezvous
    operation: str
    members: tuple[int, ...]
    devices: tuple[int, ...]
    suspects: tuple[int, ...]


def find(snapshot: Snapshot, graph: WaitGraph) -> list[Stuck]:
    """Complete places with at least one host inside the wait."""
    return [
        stuck
        for place in graph.places.values()
        if place.complete and place.blocked and (stuck := _judge(snapshot, place)) is not None
    ]


def _judge(snapshot: Snapshot, place: Place) -> Stuck | None:
    facts = snapshot.groups.get(place.at[0])
    if facts is None or facts.members is None:
        return None
    members = tuple(facts.members)
    call = snapshot.call_at(place.arrived[0], place.at)
    operation = call.fingerprint.operation if call else ""
    laggards = [r for r in members if _retired(snapshot, r, place) is False]
    finished = [r for r in members if _retired(snapshot, r, place) is True]
    if not laggards:
        return None
    symmetric = operation in SYMMETRIC
    if symmetric and finished and not _one_run(laggards, members):
        return Stuck(place.at, operation, members, tuple(sorted(laggards)), ())
    return Stuck(place.at, operation, members, (), tuple(sorted(laggards)) if finished else ())


def _retired(snapshot: Snapshot, rank: int, place: Place) -> bool | None:
    """Has this member finished the collective? None where its evidence is stale or absent."""
    report = snapshot.ranks.get(rank)
    if report is None or snapshot.heartbeat_silent(rank) or rank in snapshot.unheard:
        return None
    if rank in place.arrived:
        return False
    facts = snapshot.groups.get(place.at[0])
    view = facts.views.get(rank) if facts else None
    call = snapshot.call_at(rank, place.at)
    if call is not None:
        return call.state is CallState.DONE
    if view is None:
        return None
    return view.retired >= place.at[1] if view.retired is not None else view.enqueued > place.at[1]


def _one_run(laggards: list[int], members: tuple[int, ...]) -> bool:
    """Two or more laggards that follow each other in ring order."""
    if len(laggards) < 2:
        return False
    inside = [rank in laggards for rank in members]
    borders = sum(inside[i] != inside[i - 1] for i in range(len(inside)))
    return borders == 2
