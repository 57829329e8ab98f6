"""The wait-for graph (design §4 b): who waits for whom, and who waits for nobody.

A hang cascades: the mates of the culprit stop in different collectives, so comparing one peer group blames
victims. The graph is bipartite. A rank *arrives* at places, (group, sequence); a place has *absent*
members, who have not enqueued that sequence, and *unknown* ones, whose counter is stale. Edges lead from a
waiting rank through a place to its absent members: O(memberships), never member × member.

An edge is *blocking* only if the host is inside the wait: a synchronous call, a wait on asynchronous work,
or a stack that says so. Work in flight that nobody awaits is a *weak* edge. A weak edge makes its target
somebody whom others wait for, but it never excuses its owner: a rank that prefetched a collective and then
hung is "in" that collective too.

A *root* is a rank that others wait for and that is not itself blocked. Where a rank has weak edges only and
no stack tells whether its host waits, it is *undecided*: the core asks for its stack before it judges.
A root that sits in a complete place or a met transfer may be held up there by others (``behind``).
Silence of a heartbeat alone is never a root; but where everybody else has arrived at a place and one member
is unknown, that member is the only one who can be late (rule of elimination).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scoutd.agent.behind import behind
from scoutd.agent.census import Own, census
from scoutd.agent.evidence import Call, CallKind, CallState, RankReport
from scoutd.agent.meeting import awaited
from scoutd.agent.snapshot import Rendezvous, Snapshot


@dataclass(frozen=True, slots=True)
class Place:
    """One (group, sequence) at which somebody waits. ``blocked`` ⊆ ``arrived`` are those whose host is
    inside the wait. A place with nobody absent or unknown is *complete*: its members wait for the
    transport or the device, not for each other."""

    at: Rendezvous
    arrived: tuple[int, ...]
    blocked: frozenset[int]
    absent: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def complete(self) -> bool:
        return not self.absent and not self.unknown


@dataclass(frozen=True)
class WaitGraph:
    """``waits_for[r]``: ranks that r waits for, through any edge; ``blocked``: ranks with a blocking edge;
    ``excused``: ranks that wait for something outside the graph (a store key, a peer without a shim)."""

    places: Mapping[Rendezvous, Place]
    waits_for: Mapping[int, tuple[int, ...]]
    blocked: frozenset[int]
    excused: frozenset[int]
    roots: tuple[int, ...] = ()
    undecided: tuple[int, ...] = ()
    peers: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Blocking edges of transfers (P2P), from rank to peer."""
    eliminated: frozenset[int] = field(default_factory=frozenset)
    """Roots that were found by elimination: stale counter, everybody else arrived."""

    def waiting_for(self, ranks: Collection[int]) -> list[int]:
        """Who waits for any of these ranks, in order."""
        wanted = frozenset(ranks)
        distinct = {id(targets): targets for targets in self.waits_for.values()}
        hit = {key: not wanted.isdisjoint(targets) for key, targets in distinct.items()}
        return sorted(rank for rank, targets in self.waits_for.items() if hit[id(targets)])


def host_waits(report: RankReport) -> bool | None:
    """Is the host inside a wait for other ranks? None: only a deeper stack could tell."""
    if any(c.waiting for c in report.calls if c.state is CallState.PENDING):
        return True
    coordinate = report.coordinate
    if coordinate is not None and coordinate.waiting:
        return True
    return report.stack.waits if report.stack is not None else None


def build(snapshot: Snapshot, post_mortem: bool = False) -> WaitGraph:
    """The graph of this moment, with its roots.

    ``post_mortem``: the calls in which ranks died or failed count as waits, too.
    """
    return snapshot.once(_post_mortem if post_mortem else _living, lasting=True)


def _living(snapshot: Snapshot) -> WaitGraph:
    return _build(snapshot, post_mortem=False)


def _post_mortem(snapshot: Snapshot) -> WaitGraph:
    return _build(snapshot, post_mortem=True)


def _build(snapshot: Snapshot, post_mortem: bool) -> WaitGraph:
    seen = census(snapshot)
    waiting = seen.unfinished if post_mortem else seen.pending
    places = {at: _place(snapshot, at, waiters) for at, waiters in waiting.items()}
    peers = _p2p_edges(snapshot, seen.transfers)
    blocked = set(peers)
    for place in places.values():
        if not place.complete:
            blocked |= place.blocked
    graph = WaitGraph(places, _waits_for(places, peers), frozenset(blocked), seen.outside)
    return _with_roots(graph, snapshot, peers)


def _waits_for(
    places: Mapping[Rendezvous, Place], peers: Mapping[int, set[int]]
) -> dict[int, tuple[int, ...]]:
    """For each rank whom it waits for. Ranks that wait at the same places share one tuple: half of a large
    job may wait for the other half, and nothing here may grow with member × member."""
    at: dict[int, tuple[int, ...]] = dict.fromkeys(peers, ())
    late = [(*place.absent, *place.unknown) for place in places.values()]
    for k, place in enumerate(places.values()):
        alone = (k,)
        for rank in place.arrived:
            entered = at.get(rank)
            at[rank] = (*entered, k) if entered else alone
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    found: dict[int, tuple[int, ...]] = {}
    for rank, entered in at.items():
        targets = shared.get(entered)
        if targets is None:
            targets = shared[entered] = tuple(sorted({r for k in entered for r in late[k]}))
        own = peers.get(rank)
        found[rank] = tuple(sorted({*targets, *own})) if own else targets
    return found


def _place(snapshot: Snapshot, at: Rendezvous, waiters: Sequence[Own]) -> Place:
    facts = snapshot.groups.get(at[0])
    present = {rank for rank, _ in waiters}
    absent: list[int] = []
    unknown: list[int] = []
    wanted = _wanted(waiters)
    members = facts.members if facts is not None and facts.members is not None else ()
    for rank in members:
        if rank in present or (wanted is not None and rank not in wanted):
            continue
        came = snapshot.arrived(rank, at)
        if came is None:
            unknown.append(rank)
        elif not came:
            absent.append(rank)
    blocked = frozenset(
        [rank for rank, call in waiters if call.waiting or _blocks(snapshot.ranks[rank], call)]
    )
    return Place(at, tuple(sorted(present)), blocked, tuple(absent), tuple(unknown))


def _wanted(waiters: Sequence[Own]) -> frozenset[int] | None:
    """Whom the waiters wait for, where that is not the whole group; None where one waits for all."""
    told: set[int] = set()
    for _, call in waiters:
        ranks = awaited(call)
        if ranks is None:
            return None
        told |= ranks
    return frozenset(told)


def _blocks(report: RankReport, call: Call) -> bool:
    """The host is inside this very wait; a stack that waits counts for every call without a better word."""
    if call.waiting or call.state is CallState.FAILED:
        return True
    if any(c.waiting for c in report.calls if c.state is CallState.PENDING):
        return False
    return host_waits(report) is True


def _p2p_edges(snapshot: Snapshot, transfers: Iterable[Own]) -> dict[int, set[int]]:
    """A receive (or a send) that waits, towards a peer that has not made its counterpart yet."""
    edges: dict[int, set[int]] = {}
    for rank, call in transfers:
        if call.peer is not None and not _met(snapshot, rank, call):
            edges.setdefault(rank, set()).add(call.peer)
    return edges


def _met(snapshot: Snapshot, rank: int, call: Call) -> bool:
    """Has the peer made as many counterparts of this call as this rank has made calls?"""
    other = snapshot.ranks.get(call.peer if call.peer is not None else -1)
    if other is None or not other.observed:
        return False
    kind = CallKind.P2P_SEND if call.kind is CallKind.P2P_RECV else CallKind.P2P_RECV
    made = [
        c.sequence
        for c in other.calls
        if c.kind is kind and c.peer == rank and c.tag == call.tag and c.group == call.group
    ]
    return max(made, default=0) >= call.sequence


def _with_roots(graph: WaitGraph, snapshot: Snapshot, peers: Mapping[int, set[int]]) -> WaitGraph:
    awaited = {r for place in graph.places.values() for r in place.absent}
    awaited |= {r for targets in peers.values() for r in targets}
    eliminated = set(_eliminated(graph.places.values(), snapshot))
    roots: list[int] = []
    undecided: list[int] = []
    for rank in sorted((awaited | eliminated) & set(snapshot.ranks)):
        report = snapshot.ranks[rank]
        outside = rank in graph.excused or rank in snapshot.unheard
        if rank in graph.blocked or outside or not report.observed:
            continue
        if rank in graph.waits_for and host_waits(report) is None:
            undecided.append(rank)
        else:
            roots.append(rank)
    held = behind(snapshot.ranks, graph.places, peers, roots)
    return WaitGraph(
        graph.places,
        graph.waits_for,
        graph.blocked,
        graph.excused,
        tuple(r for r in roots if r not in held),
        tuple(undecided),
        {rank: tuple(sorted(targets)) for rank, targets in peers.items()},
        frozenset(eliminated - awaited),
    )


def _eliminated(places: Iterable[Place], snapshot: Snapshot) -> Iterable[int]:
    """Members with stale counters who alone can be late, or whose stack shows that they do not wait."""
    for place in places:
        if place.absent:
            continue
        for rank in place.unknown:
            report = snapshot.ranks.get(rank)
            if report is None or not report.observed or rank in snapshot.unheard:
                continue
            if len(place.unknown) == 1 or (report.stack is not None and report.stack.waits is False):
                yield rank
