"""Everybody has arrived, and still nobody goes on (design §4 e): device or transport.

At a *complete* place every member has enqueued (group, sequence). What the devices then did tells them apart:

- Of a symmetric collective all members finish at about the same time. Where some have long retired it and
  others have not, the others' devices are stuck: DEVICE_STALL of each.
- A lost hop of a ring starves everyone downstream, so laggards that are a contiguous run of two or more in
  ring order may be victims of the transport: GROUP_STALL with suspects, nobody implicated. But a starved
  device never begins the group's next collective, and without it nobody finishes that one. If others have
  retired a *later* sequence, the laggards took part in it, and it is their devices after all.
- Where the recorder tells what has *started*, a member that has not started what others have, while its
  device executes no other collective, is stuck in its own work: DEVICE_STALL before anybody retires.
- A group of one has nobody to wait for. If its call is the oldest that the rank has not finished, no other
  collective holds it up either: DEVICE_STALL, where the recorder tells that it is not retired. A work that is
  kept and not waited for looks pending without that.
- Nobody has retired it and nothing else is known: GROUP_STALL. A stalled group makes others stall behind it;
  reported is the place that is first in line for all its members, if there is one.

A group is judged at its first unfinished sequence. Ranks whose counters are stale say nothing here; that they
came is known once somebody has finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scoutd.agent.evidence import CallState, RankReport
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


def find(snapshot: Snapshot, graph: WaitGraph, silent: Iterable[int]) -> list[Stuck]:
    """The first stuck place of each group whose members are all ``silent``.

    Where a device is stuck, stalls of groups are its consequences and are left out.
    """
    quiet = set(silent)
    found = [stuck for place in _first_places(snapshot, graph) if (stuck := _judge(snapshot, place, quiet))]
    return [stuck for stuck in found if stuck.devices] or _first_in_line(snapshot, found)


def on_accelerator(report: RankReport) -> bool:
    """Its collectives are enqueued on a device, and the host does not wait inside them."""
    return report.device not in ("", "cpu")


def _first_places(snapshot: Snapshot, graph: WaitGraph) -> Iterable[Place]:
    """Per group the lowest place where nobody is known to be absent and a host or device waits."""
    first: dict[int, Place] = {}
    for place in graph.places.values():
        group, sequence = place.at
        if place.absent or (group in first and first[group].at[1] <= sequence):
            continue
        if place.blocked or any(on_accelerator(snapshot.ranks[r]) for r in place.arrived):
            first[group] = place
    return first.values()


def _judge(snapshot: Snapshot, place: Place, silent: set[int]) -> Stuck | None:
    facts = snapshot.groups.get(place.at[0])
    if facts is None or facts.members is None:
        return None
    members = tuple(facts.members)
    seen = {r for r in members if r in snapshot.ranks and snapshot.ranks[r].observed}
    if not members or not seen <= silent:
        return None
    call = snapshot.call_at(place.arrived[0], place.at)
    operation = call.fingerprint.operation if call else ""
    if len(members) == 1:
        own = _is_stuck_alone(snapshot, members[0], place)
        return Stuck(place.at, operation, members, members, ()) if own else None
    arrived = frozenset(place.arrived)
    retired = [(r, _retired(snapshot, r, place.at, r in arrived)) for r in members]
    laggards = [r for r, through in retired if through is False]
    finished = [r for r, through in retired if through is True]
    if not laggards or (place.unknown and not finished):
        return None  # a symmetric collective that somebody finished is one that everybody had entered
    if operation in SYMMETRIC:
        starved = _one_run(laggards, members) and not _went_on(snapshot, place, finished)
        devices = laggards if finished and not starved else _not_started(snapshot, laggards, place)
        if devices:
            return Stuck(place.at, operation, members, tuple(sorted(devices)), ())
    if place.unknown:
        return None
    return Stuck(place.at, operation, members, (), tuple(sorted(laggards)) if finished else ())


def _is_stuck_alone(snapshot: Snapshot, rank: int, place: Place) -> bool:
    """Of a group of one: the device has not finished the call, and no other call holds it up."""
    view = snapshot.view(rank, place.at[0])
    unfinished = view is not None and view.retired is not None and view.retired < place.at[1]
    return unfinished and on_accelerator(snapshot.ranks[rank]) and _is_oldest(snapshot, rank, place.at)


def _retired(snapshot: Snapshot, rank: int, at: Rendezvous, arrived: bool) -> bool | None:
    """Has this member finished the collective? None where its evidence is stale or absent. ``arrived``: it
    is still inside."""
    report = snapshot.ranks.get(rank)
    if report is None or snapshot.heartbeat_silent(rank):
        return None
    if arrived:
        return False
    call = snapshot.call_at(rank, at)
    if call is not None:
        return call.state is CallState.DONE
    view = snapshot.view(rank, at[0])
    if view is None:
        return None
    return view.retired >= at[1] if view.retired is not None else view.enqueued > at[1]


def _one_run(laggards: list[int], members: tuple[int, ...]) -> bool:
    """Two or more laggards that follow each other in ring order."""
    if len(laggards) < 2:
        return False
    behind = frozenset(laggards)
    inside = [rank in behind for rank in members]
    borders = sum(inside[i] != inside[i - 1] for i in range(len(inside)))
    return borders == 2


def _went_on(snapshot: Snapshot, place: Place, finished: list[int]) -> bool:
    """Others have finished a later collective of the group, so the laggards' devices took part in it."""
    views = snapshot.views(place.at[0])
    retired = (views[r].retired for r in finished if r in views)
    return any(sequence is not None and sequence > place.at[1] for sequence in retired)


def _not_started(snapshot: Snapshot, laggards: list[int], place: Place) -> list[int]:
    """Laggards whose devices have not begun what others have, and execute no other collective."""
    views = snapshot.views(place.at[0])
    began = {r: s >= place.at[1] for r in laggards if r in views and (s := views[r].started) is not None}
    if not any(began.values()):
        return []
    return [r for r, started in began.items() if not started and not _executes(snapshot.ranks[r])]


def _executes(report: RankReport) -> bool:
    """Some collective has started on the device and not finished."""
    return any(
        v.started is not None and v.retired is not None and v.started > v.retired for v in report.groups
    )


def _first_in_line(snapshot: Snapshot, found: list[Stuck]) -> list[Stuck]:
    """Stalls that are the oldest unfinished call of all their members; every stall where there is none."""
    first = [stuck for stuck in found if all(_is_oldest(snapshot, r, stuck.at) for r in stuck.members)]
    return first or found


def _is_oldest(snapshot: Snapshot, rank: int, at: Rendezvous) -> bool:
    report = snapshot.ranks.get(rank)
    open_calls = [] if report is None else [c for c in report.calls if c.state is CallState.PENDING]
    oldest = max(open_calls, key=lambda c: c.age_ns, default=None)
    return oldest is None or (oldest.group, oldest.sequence) == at
