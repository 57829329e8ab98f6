"""How often to synchronise while there is suspicion: fast while there are news, never faster than is borne.

Three things decide. *News* (a version that was not known or not held): while there are any, rounds follow
each other every ``sync_interval_s``, so that news reach everybody in O(log N) of these. *Size*: a round says
one mark per node, so rounds without news, which only carry beats, become rarer with the cluster, from
``FREE_NODES`` nodes on; their cost per second then stays what it is for that many. *Strain*: a peer that
takes long to answer, or an agent whose own rounds come late, is drowning, and more requests would drown it.
So the pause is at least the usual answering time, no more synchronisations wait at once than one round
begins, and what waits is given time: a request that is given up is work for nothing. Losses one after the
other double the time-out until something is answered (Karn's rule). Machines that are too small for their
agents are then slow, no more. *Loss* is something else: who is not late itself and usually gets quick
answers does not wait for one that is long overdue (``patience_ns``), but asks somebody else meanwhile.
"""

from __future__ import annotations

from collections import deque

from scoutd.agent.settings import NS_PER_S, ExchangeSettings

FREE_NODES = 64
MOST_STRETCH = 8
"""Bounds the pause without news, and with it the time until a silent node is missed."""

LATE_FACTOR = 4
"""A request passes four queues: ours and theirs, there and back; where ours is late, all may be."""

LATE_DECAY = 0.85
MOST_LATE_NS = 10 * NS_PER_S
"""Who comes later than that was stopped, which says nothing of the time after: without a bound it would take
minutes to forget a pause of minutes."""

TRIPS = 8
"""Nothing hurries: a time-out of so many usual answering times leaves queues room to grow."""

KEPT_TRIPS = 4
TELLING_TRIPS = 3
PATIENT_TRIPS = 4
"""Twice the trip is common where queues are; four times is a message that was lost, or a peer in trouble."""

REST_TRIPS = 4
"""Where answers are slow among many, requests wait in queues, and what they say is old when it is heard. Who
asks again only after some more of that time keeps the queues short, and as much is said."""

MOST_REST_NS = 3 * NS_PER_S

LEAST_TIMEOUT_NS = NS_PER_S
MANY_TIMEOUTS = 4
"""Among many, a machine that was idle has quick answers to remember, and then queues."""

FIRST_TIMEOUT_NS = 5 * NS_PER_S
MOST_TIMEOUT_NS = 20 * NS_PER_S


class Pace:
    """``late_ns``: how late this agent's own rounds come of late, as its driver measures it. ``gap_ns``: how
    far apart its synchronisations really are of late. ``oldest_ns``: how long the oldest that waits has
    waited."""

    def __init__(self, settings: ExchangeSettings) -> None:
        self.late_ns = 0
        self.gap_ns = 0
        self.oldest_ns = 0
        self._began_ns = 0
        self._interval_ns = int(settings.sync_interval_s * NS_PER_S)
        self._least_ns = int(settings.least_timeout_s * NS_PER_S)
        self._trips: deque[int] = deque(maxlen=KEPT_TRIPS)
        self._fanout = settings.fanout
        self._floor_ns = FIRST_TIMEOUT_NS
        self._news = 0

    def timeout_ns(self, nodes: int) -> int:
        """How long to wait for the answer to one."""
        usual = sorted(self._trips)[len(self._trips) // 2] if self._trips else 0
        least = LEAST_TIMEOUT_NS * (MANY_TIMEOUTS if nodes > FREE_NODES else 1)
        known = max(least, min(TRIPS * usual, MOST_TIMEOUT_NS)) if usual else 0
        return max(known, self._floor_ns) + LATE_FACTOR * self.late_ns

    @property
    def patience_ns(self) -> int:
        """How long one is waited for before another is begun in its place."""
        usual = PATIENT_TRIPS * self._trip_ns if self._trip_ns else LEAST_TIMEOUT_NS
        return max(self._least_ns, usual) + LATE_FACTOR * self.late_ns

    def began(self, now_ns: int, since_ns: int) -> None:
        """Synchronisations begin now. ``since_ns``: when this series of them began; before that is no gap."""
        if self._began_ns >= since_ns:
            self.gap_ns = max(now_ns - self._began_ns, int(self.gap_ns * LATE_DECAY))
        self._began_ns = now_ns

    def answered(self, trip_ns: int) -> None:
        """A synchronisation was answered after this time."""
        self._floor_ns = 0
        self._trips.append(trip_ns)

    def lost(self) -> None:
        """One was not answered. The first loss may be the network's; more of them are somebody's strain."""
        self._floor_ns = min(MOST_TIMEOUT_NS, max(2 * self._floor_ns, LEAST_TIMEOUT_NS))

    def late(self, late_ns: int) -> None:
        """The driver came so much later than it had wanted to."""
        self.late_ns = max(min(late_ns, MOST_LATE_NS), int(self.late_ns * LATE_DECAY))

    @property
    def strain_ns(self) -> int:
        """How much longer than usual an answer may take before its absence means anything."""
        return LATE_FACTOR * max(self.late_ns, self._trip_ns)

    @property
    def drowning(self) -> bool:
        """This agent is so late that it must not say who is out of reach: it may be the one."""
        return self.late_ns > self._least_ns

    @property
    def strained(self) -> bool:
        """Answers take so long that missing ones say nothing of a peer."""
        return max(LATE_FACTOR * self.late_ns, self._trip_ns) > self._least_ns

    def fanout(self, nodes: int) -> int:
        """How many synchronisations may wait at once: one where answers are slow, and among many until one
        was answered. Who asks two at once learns the same from both, and is a burden to both."""
        return 1 if self.strained or (nodes > FREE_NODES and not self._trips) else self._fanout

    def next_ns(self, news: int, nodes: int) -> int:
        """The pause before the next round. ``news`` counts what was learned so far."""
        fresh, self._news = news != self._news, news
        return self._borne(self._interval_ns, nodes) if fresh else self.slowest_ns(nodes)

    def slowest_ns(self, nodes: int) -> int:
        """The pause without news."""
        stretch = min(MOST_STRETCH, max(1.0, nodes / FREE_NODES))
        return self._borne(int(stretch * self._interval_ns), nodes)

    @property
    def _trip_ns(self) -> int:
        """The usual answering time: the quickest of the last few. Where all are slow, that is strain; one
        that is slow says something of one peer, which may have been stopped. 0 while there were too few."""
        return min(self._trips) if len(self._trips) >= TELLING_TRIPS else 0

    def _borne(self, pause_ns: int, nodes: int) -> int:
        """At least the usual answering time; among many several times as much, and before it is known, what
        the first has waited already."""
        trip_ns = self._trip_ns or (self.oldest_ns if nodes > FREE_NODES else 0)
        rest_ns = int(min(REST_TRIPS, max(1.0, nodes / FREE_NODES)) * trip_ns)
        return max(pause_ns, min(rest_ns, MOST_REST_NS), self._trip_ns, self.late_ns)
