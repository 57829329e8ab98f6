"""The exchange of evidence between the agents of one job (design §4): no coordinator, no clock, no socket.

Idle, an agent probes one partner per interval and piggybacks a few marks, those of agents that are new
first: that is how agents learn of each other and notice that one is gone (SWIM). Under suspicion (its own
core's, or a peer's) it runs push-pull anti-entropy with a few partners per interval: marks first, then the
reports that one side lacks. A report thus reaches all N agents in O(log N) intervals. The pace follows what
there is to say and what the network and the machines bear, see ``pace``.

Life is judged by beats. A node whose beat grows anywhere is alive. Under suspicion a node that has been quiet
too long is probed directly; if that fails, other agents are asked to try (``Relay``), and only if none of
them reaches it either is it *unreachable*. A beat that grows later takes it back.

The driver (asyncio or simulation) sends what ``tick`` and the other methods return and brings back every
reply or failure exactly once. The random generator is part of the state, so a run can be repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scoutd.agent.acquaintance import Acquaintance
from scoutd.agent.flight import Flight
from scoutd.agent.messages import (
    Blob,
    Mark,
    Outgoing,
    Probe,
    ProbeReply,
    Push,
    PushReply,
    Relay,
    RelayReply,
    Reply,
    Request,
    Sync,
    SyncReply,
)
from scoutd.agent.pace import LATE_FACTOR, Pace
from scoutd.agent.partners import Partners
from scoutd.agent.piggyback import Piggyback
from scoutd.agent.reach import Reach
from scoutd.agent.replica import Replica
from scoutd.agent.roundtrip import RoundTrip
from scoutd.agent.settings import NS_PER_S, ExchangeSettings
from scoutd.agent.tally import Tallies

IDLE_STRETCH = 2
"""While nothing is wrong and nobody is new, probes only say that we are there: they may be rarer."""

FIRST_VERSION_BITS = 16
"""Small, because every mark carries it; two lives begin alike once in 65,536 times."""

STOOD_STILL_NS = NS_PER_S
"""Who was not asked what is due for so long, and is not late anyway, did not run (``Settings.max_gap_s`` is
the core's measure)."""


@dataclass
class Exchange:
    """One agent's part. ``seeds`` are addresses to join through while nobody is known."""

    replica: Replica
    settings: ExchangeSettings
    random: random.Random
    seeds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        s = self.settings
        if not self.replica.mine.version:
            self.replica.begin(self.random.getrandbits(FIRST_VERSION_BITS))
        self.round_trip = RoundTrip(s.k_sigma, _ns(s.least_timeout_s), _ns(s.most_timeout_s))
        self._alarmed_until_ns = 0
        self._alarmed_since_ns = 0
        self._ticked_ns = self._woke_ns = 0
        self._next_probe_ns = 0
        self._next_sync_ns = 0
        self._acquaintance = Acquaintance(s, self.random)
        self._partners = Partners(self.replica.me, s.partners, self.random)
        self._piggyback = Piggyback(self.replica.me, s.piggyback, self.random)
        self.pace = Pace(s)
        self._flight = Flight(s.in_flight)
        self._reach = Reach()
        self.tallies = Tallies()

    @property
    def unreachable(self) -> dict[str, int]:
        """Nodes out of reach, with the local time since when."""
        return self._reach.lost

    @property
    def peers(self) -> list[str]:
        """Other agents that have not taken their leave."""
        return self.replica.others

    def majority(self, stale: frozenset[str]) -> bool:
        """More than half of all known nodes, this one included, are in reach and not stale."""
        total = len(self.peers) + 1
        return 2 * (total - len(self.unreachable) - len(stale)) > total

    def alarmed(self, now_ns: int) -> bool:
        return now_ns < self._alarmed_until_ns

    def alarm(self, now_ns: int) -> None:
        """The core is suspicious: exchange evidence for a while."""
        self._heed(_ns(self.settings.alarm_hold_s), now_ns)

    def alarm_ns(self, now_ns: int) -> int:
        """How long evidence is still exchanged."""
        return max(0, self._alarmed_until_ns - now_ns)

    def _heed(self, alarm_ns: int, now_ns: int) -> None:
        """An alarm is taken over with the time that it has left: agents cannot keep each other alarmed."""
        left = min(alarm_ns, _ns(self.settings.alarm_hold_s))
        if left and not self.alarmed(now_ns):
            self._next_sync_ns = self._alarmed_since_ns = now_ns
        self._alarmed_until_ns = max(self._alarmed_until_ns, now_ns + left)

    def stale(self, now_ns: int) -> frozenset[str]:
        """Nodes in reach whose newest report is not here, or of which nothing was heard lately."""
        since = now_ns - self._quiet_ns() * 2 - self.round_trip.timeout_ns
        found = self.replica.outdated(since).difference(self.unreachable)
        return found.intersection(self.peers) if found else found

    def oldest_ns(self, now_ns: int, stale: frozenset[str]) -> int:
        """How long ago the quietest node in reach was heard of, stale ones apart."""
        away = stale.union(self.unreachable)
        quiet = self.replica.quiet(now_ns)
        return max([quiet[node] for node in self.peers if node not in away], default=0)

    def tick(self, now_ns: int) -> list[Outgoing]:
        """Requests that are due now."""
        if self._stood_still(now_ns):
            self._woke_ns = now_ns
        self._ticked_ns = now_ns
        sent = self._join(now_ns) if self.seeds else []
        if self.seeds and self.replica.alone:
            return sent
        if now_ns >= self._next_probe_ns and not self._synchronises(now_ns):
            stretch = 1 if self._piggyback.news or self.alarmed(now_ns) else IDLE_STRETCH
            self._next_probe_ns = now_ns + stretch * _ns(self.settings.probe_interval_s)
            self.replica.beat(now_ns)
            sent += self._probe(self._partners.next(self.replica.present()), now_ns)
        if self.alarmed(now_ns) and now_ns >= self._next_sync_ns:
            self._next_sync_ns = now_ns + self.pace.next_ns(self.replica.news, len(self.replica.entries))
            self.replica.beat(now_ns)
            oldest_ns = self._flight.oldest_ns(Sync)
            self.pace.oldest_ns = now_ns - oldest_ns if oldest_ns is not None else 0
            waiting = self._flight.waiting(Sync, now_ns - self.pace.patience_ns, self.unreachable)
            count = max(0, self.pace.fanout(len(self.replica.entries)) - waiting)
            if count:
                self.pace.began(now_ns, self._alarmed_since_ns)
            for node in self._partners.sample(count, self.replica.present(), self.unreachable):
                alarm_ns, told = self.alarm_ns(now_ns), self.tallies.told()
                sent += self._request(node, Sync((), alarm_ns, told, self.replica.columns()), now_ns)
            sent += self._probe_quiet(now_ns)
        return sent

    def _synchronises(self, now_ns: int) -> bool:
        """Synchronisations say more than probes by turns, which would only delay them. Among so few that all
        are partners, every probe is a look at somebody who may be gone."""
        return self.alarmed(now_ns) and len(self.replica.entries) > self.settings.partners + 1

    def depart(self, now_ns: int) -> list[Outgoing]:
        """This node's part is over: the farewell, with its last report, to a few peers. Nothing else is sent
        from now on; who asks still gets an answer."""
        self.replica.depart(now_ns)
        blobs = self.replica.blobs([self.replica.me], now_ns)
        request = Push(blobs) if blobs else self._greeting(now_ns)
        in_reach = [node for node in self.peers if node not in self.unreachable]
        chosen = self.random.sample(in_reach, min(self.settings.partners, len(in_reach)))
        most = _ns(self.settings.most_timeout_s)
        return [Outgoing(n, self.replica.mark_of(n).address, request, most) for n in chosen]

    def handle(self, request: Request, now_ns: int) -> Reply:
        """The answer to a peer's request. A Relay is the driver's: see ``relay`` and ``relayed``."""
        if isinstance(request, Probe):
            self._learn(request.marks, now_ns)
            self._heed(request.alarm_ns, now_ns)
            self.tallies.merge(request.tallies)
            mine = self._greeting(now_ns)
            return ProbeReply(mine.marks, mine.alarm_ns, mine.tallies, mine.roster, mine.known)
        if isinstance(request, Sync):
            return self._synchronise(request, now_ns)
        if isinstance(request, Push):
            return PushReply(self._take(request.blobs, now_ns))
        raise TypeError(f"not answered here: {request!r}")

    def _synchronise(self, request: Sync, now_ns: int) -> SyncReply:
        self._heed(request.alarm_ns, now_ns)
        self.tallies.merge(request.tallies)
        told = self.tallies.told()
        if request.columns is None:
            self._learn(request.marks, now_ns)
            lacks, wanted, newer = self.replica.difference(request.marks)
            return SyncReply(self.replica.blobs(lacks, now_ns), tuple(wanted), tuple(newer), told)
        compared = self.replica.compare(request.columns, now_ns)
        if compared is None:
            return SyncReply((), (), (), told, strange=True)
        self._heard(compared.grown)
        blobs = self.replica.blobs(compared.lacks, now_ns)
        return SyncReply(blobs, tuple(compared.wanted), (), told, compared.newer)

    def relay(self, request: Relay, now_ns: int) -> Outgoing:
        """The probe that a relay asks for; its outcome becomes the reply through ``relayed``."""
        return Outgoing(request.node, request.address, self._greeting(now_ns), self.round_trip.timeout_ns)

    def relayed(self, reply: Reply | None) -> RelayReply:
        if isinstance(reply, ProbeReply):
            return RelayReply(True, reply.marks)
        return RelayReply(False, ())

    def on_reply(self, sent: Outgoing, reply: Reply, now_ns: int) -> list[Outgoing]:
        """A reply arrived; what has to be sent because of it."""
        self._done(sent, now_ns, measure=isinstance(reply, ProbeReply), answered=True)
        self._reach.heard(sent.node)
        if isinstance(reply, (ProbeReply, SyncReply)):
            self.tallies.merge(reply.tallies)
        if isinstance(reply, ProbeReply):
            self._learn(reply.marks, now_ns)
            self._heed(reply.alarm_ns, now_ns)
            return self._acquaint(sent.node, reply, now_ns)
        elif isinstance(reply, SyncReply):
            self._learn(reply.marks, now_ns)
            compared = self.replica.compare(reply.columns, now_ns) if reply.columns is not None else None
            self._heard(compared.grown if compared is not None else ())
            self._take(reply.blobs, now_ns)
            if reply.strange and isinstance(sent.request, Sync) and sent.request.columns is not None:
                again = Sync(self.replica.marks(), self.alarm_ns(now_ns))
                return self._request(sent.node, again, now_ns, sent.address)
            blobs = self.replica.blobs(reply.wanted, now_ns)
            if blobs:
                return self._request(sent.node, Push(blobs), now_ns, sent.address)
        elif isinstance(reply, RelayReply) and isinstance(sent.request, Relay):
            self._learn(reply.marks, now_ns)
            self._relay_ended(sent.request.node, sent.node, reply.reached, now_ns)
        return []

    def on_failure(self, sent: Outgoing, now_ns: int) -> list[Outgoing]:
        """No reply within the time-out, or no connection; what has to be sent because of it."""
        self._done(sent, now_ns, measure=False, answered=False)
        if isinstance(sent.request, Relay):
            self._relay_ended(sent.request.node, sent.node, False, now_ns)
        elif not isinstance(sent.request, Probe):
            return self._probe(sent.node, now_ns) if sent.node and not self.pace.strained else []
        if not sent.node or isinstance(sent.request, Relay):
            return []
        return self._suspect(sent.node, sent.address, now_ns)

    def _join(self, now_ns: int) -> list[Outgoing]:
        chosen = self._acquaintance.seeds(self.seeds, self.replica, now_ns)
        if not chosen:
            return []
        request, most = Sync(self.replica.marks(), self.alarm_ns(now_ns)), _ns(self.settings.most_timeout_s)
        return [Outgoing("", address, request, most) for address in chosen]

    def _acquaint(self, node: str, reply: ProbeReply, now_ns: int) -> list[Outgoing]:
        """Who is there, from a peer that knows others; under an alarm every synchronisation tells that."""
        known, same = len(self.replica.entries), reply.roster in (0, self.replica.roster)
        if self.alarmed(now_ns) or not self._acquaintance.ask(same, known, reply.known, now_ns):
            return []
        return self._request(node, Sync(self.replica.marks()), now_ns)

    def _learn(self, marks: Iterable[Mark], now_ns: int) -> None:
        """Marks are merged; a node whose beat grew is in reach. A few new nodes are news to tell, many are
        what everybody knows but us."""
        known = len(self.replica.entries)
        grown = self.replica.merge_marks(marks, now_ns)
        now = len(self.replica.entries)
        self.tallies.tellings = 1 + math.ceil(math.log2(max(2, now)))
        if 0 < now - known <= self._piggyback.room:
            self._piggyback.add(list(self.replica.entries)[known:], now)
        self._heard(grown)

    def _take(self, blobs: Sequence[Blob], now_ns: int) -> int:
        """These reports are known, and that their nodes live; returns how many are news."""
        self._learn((blob.mark for blob in blobs), now_ns)
        return self.replica.merge_blobs(blobs, now_ns)

    def _heard(self, grown: Iterable[str]) -> None:
        """The beats of these nodes grew: they are in reach, or have taken their leave, which is news."""
        entries = self.replica.entries
        for node in grown:
            self._reach.heard(node)
            if entries[node].left:
                self._piggyback.add((node,), len(entries))

    def _own_marks(self) -> tuple[Mark, ...]:
        """This agent's own mark and a bounded piggyback."""
        chosen = self._piggyback.choose(self.replica.entries)
        return tuple(self.replica.mark_of(node) for node in (self.replica.me, *chosen))

    def _probe(self, node: str, now_ns: int) -> list[Outgoing]:
        return self._request(node, self._greeting(now_ns), now_ns) if node else []

    def _greeting(self, now_ns: int) -> Probe:
        replica, told = self.replica, self.tallies.told()
        known = len(replica.entries)
        return Probe(self._own_marks(), self.alarm_ns(now_ns), told, replica.roster, known)

    def _quiet_ns(self) -> int:
        rounds = math.log2(max(2, len(self.replica.entries))) + self.settings.quiet_rounds
        gap_ns = self.pace.gap_ns if self.pace.strained else 0
        return int(rounds * max(self.pace.slowest_ns(len(self.replica.entries)), gap_ns))

    def _probe_quiet(self, now_ns: int) -> list[Outgoing]:
        """Direct probes to the nodes that nobody has heard of lately, longest silence first, a few.

        Beats travel slowly while all is well: silence from before the alarm only means something among so few
        that all are partners.
        """
        since, peers = now_ns - self._quiet_ns(), self.peers
        few = len(peers) <= self.settings.partners
        if self._alarmed_since_ns > since and not few:
            return []
        entries = self.replica.entries
        quiet = [n for n in peers if entries[n].heard_ns < since and not self._reach.suspected(n)]
        quiet.sort(key=lambda node: (node in self.unreachable, entries[node].heard_ns, node))
        most = 1 if self.pace.strained else self.settings.fanout * (2 if few else 1)
        room = max(0, most - self._flight.count(Probe))
        return [out for node in quiet[:room] for out in self._probe(node, now_ns)]

    def _request(self, node: str, request: Request, now_ns: int, address: str = "") -> list[Outgoing]:
        """Nothing where the bounds of ``Flight`` are reached, or nobody knows where the node listens."""
        if not self._flight.room(node, request):
            return []
        entry = self.replica.entries.get(node)
        target = address or (entry.address if entry is not None else "")
        if not target:
            return []
        sent = Outgoing(node, target, request, self._timeout_ns(request))
        self._flight.begin(sent, now_ns)
        return [sent]

    def _timeout_ns(self, request: Request) -> int:
        """How long its answer is waited for: while nothing is wrong there is no hurry."""
        most = _ns(self.settings.most_timeout_s)
        if isinstance(request, Probe):
            return (self.round_trip.timeout_ns if request.alarm_ns else most) + self.pace.strain_ns
        if isinstance(request, Relay):
            return most + 2 * self.pace.strain_ns
        return self.pace.timeout_ns(len(self.replica.entries))

    def _done(self, sent: Outgoing, now_ns: int, measure: bool, answered: bool) -> None:
        """What went to a node that was out of reach meanwhile measures the outage, and not the peer; what was
        under way while this agent stood still measures that."""
        began_ns = self._flight.end(sent)
        if began_ns is None or sent.node in self.unreachable:
            return
        if began_ns < self._woke_ns or self._stood_still(now_ns):
            return
        if measure:
            self.round_trip.add(now_ns - began_ns)
        elif isinstance(sent.request, Sync):
            self.pace.answered(now_ns - began_ns) if answered else self.pace.lost()

    def _stood_still(self, now_ns: int) -> bool:
        """Not asked for much longer than even a late agent is, as this one has been of late."""
        return now_ns - self._ticked_ns > STOOD_STILL_NS + LATE_FACTOR * self.pace.late_ns

    def _suspect(self, node: str, address: str, now_ns: int) -> list[Outgoing]:
        """Ask others; with nobody to ask, the node is out of reach. Among many and while nothing is wrong,
        one question at a time: probes that are lost by dozens are the network's fault, or ours."""
        entry, unsure = self.replica.entries.get(node), self._reach.doubtful(node) or self.pace.drowning
        if entry is None or entry.left or node == self.replica.me or unsure:
            return []
        if self._reach.asking and not self.alarmed(now_ns) and len(self.peers) > self.settings.partners:
            return []
        others = [p for p in self.peers if p != node and p not in self.unreachable]
        if not others:
            self._lose(node, now_ns, now_ns)
            return []
        # Who is as quiet as the node itself would only be waited for.
        since = now_ns - self._quiet_ns()
        heard = [p for p in others if self.replica.entries[p].heard_ns >= since] or others
        count = min(1 if self.pace.strained else self.settings.relays, len(heard))
        chosen: Sequence[str] = self.random.sample(heard, count)
        sent = [out for peer in chosen for out in self._request(peer, Relay(node, address), now_ns)]
        if sent:
            self._reach.suspect(node, [out.node for out in sent], now_ns)
        return sent

    def _relay_ended(self, node: str, through: str, reached: bool, now_ns: int) -> None:
        since_ns = self._reach.tried(node, through, reached)
        if since_ns is not None:
            self._lose(node, since_ns, now_ns)

    def _lose(self, node: str, since_ns: int, now_ns: int) -> None:
        """The node is out of reach, unless its beat was heard lately: then messages are lost, not it; or this
        agent is too late for every answer."""
        entry = self.replica.entries[node]
        beats = self.alarmed(now_ns) and now_ns - entry.heard_ns <= self._quiet_ns()
        if not (entry.left or beats or self.pace.drowning) and entry.heard_ns <= since_ns:
            self.unreachable[node] = since_ns


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)
