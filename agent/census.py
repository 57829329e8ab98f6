"""What the ranks of one moment are in the middle of, sorted once.

Most rules concern few ranks: who died, who waits for the store, whose transfer has not been met. None of them
has to walk over all ranks of a large job to find out that it concerns nobody. One walk sorts the ranks by
what the rules ask for; each rule starts from its own list. All lists are in the moment's order of ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from scoutd.agent.evidence import Call, CallKind, CallState, Phase, ProcessStatus, RankReport
from scoutd.agent.snapshot import Rendezvous, Snapshot

Own = tuple[int, Call]
"""A rank and its call."""

# Until Python 3.12 a member of an enum costs ten times as much to look up as a name of the module.
COLLECTIVE: Final = CallKind.COLLECTIVE
PENDING: Final = CallState.PENDING
RUNNING: Final = ProcessStatus.RUNNING
GONE: Final = ProcessStatus.GONE


@dataclass(frozen=True, slots=True)
class Census:
    """``inside``: by rank its unfinished call, the awaited one first, then the oldest. ``pending``: by place
    the collectives that living ranks have not finished; ``unfinished``: these, and those that a death or an
    exception ended; ``finished``: places that somebody has left. ``exchanges``: collectives whose splits are
    told, finished or not. ``transfers``: P2P calls in which a host waits. ``outside``: ranks that wait for a
    key of the store. ``stopped``: ranks whose process is. ``ended``: reports of processes that are gone or
    told why they will be."""

    inside: Mapping[int, Call]
    pending: Mapping[Rendezvous, Sequence[Own]]
    unfinished: Mapping[Rendezvous, Sequence[Own]]
    finished: Set[Rendezvous]
    exchanges: Sequence[Own]
    transfers: Sequence[Own]
    outside: frozenset[int]
    stopped: Sequence[int]
    ended: Sequence[RankReport]


def census(snapshot: Snapshot) -> Census:
    """The census of this moment."""
    return snapshot.once(_census, lasting=True)


def _census(snapshot: Snapshot) -> Census:
    inside: dict[int, Call] = {}
    unfinished: dict[Rendezvous, list[Own]] = defaultdict(list)
    finished: set[Rendezvous] = set()
    exchanges: list[Own] = []
    others: list[Own] = []
    failed = False
    for rank, report in snapshot.ranks.items():
        first = None
        for call in report.calls:
            collective = call.kind is COLLECTIVE
            if collective and call.sends:
                exchanges.append((rank, call))
            if call.state is not PENDING:
                if call.state is CallState.DONE:
                    if collective:
                        finished.add((call.group, call.sequence))
                    continue
                failed = True
            if first is None or (call.waiting, call.age_ns) > (first.waiting, first.age_ns):
                first = inside[rank] = call
            if collective:
                unfinished[call.group, call.sequence].append((rank, call))
            elif call.waiting and call.state is PENDING:
                others.append((rank, call))
    unusual = [r for r in snapshot.ranks.values() if r.notes or r.process.status is not RUNNING]
    broken = failed or any(r.process.status is GONE for r in unusual)
    return Census(
        inside=inside,
        pending=_pending(snapshot) if broken else unfinished,
        unfinished=unfinished,
        finished=finished,
        exchanges=exchanges,
        transfers=[(rank, call) for rank, call in others if call.peer is not None],
        outside=frozenset(_outside(snapshot, {rank for rank, call in others if call.kind is CallKind.STORE})),
        stopped=[r.rank for r in unusual if r.process.status is ProcessStatus.STOPPED],
        ended=[r for r in unusual if r.notes or r.process.status is GONE],
    )


def _outside(snapshot: Snapshot, calling: set[int]) -> list[int]:
    """Ranks that wait in an operation of the store, by their call or by their coordinate."""
    store = Phase.STORE
    return [
        rank
        for rank, report in snapshot.ranks.items()
        if ((at := report.coordinate) is not None and at.waiting and at.phase is store) or rank in calling
    ]


def _pending(snapshot: Snapshot) -> Mapping[Rendezvous, Sequence[Own]]:
    found: dict[Rendezvous, list[Own]] = {}
    for rank, report in snapshot.ranks.items():
        for call in report.calls if snapshot.alive(rank) else ():
            if call.kind is COLLECTIVE and call.state is PENDING:
                found.setdefault((call.group, call.sequence), []).append((rank, call))
    return found
