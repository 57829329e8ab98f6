"""How often to synchronise while there is suspicion: fast while there are news, never faster than is borne.

Three things decide. *News* (a version that was not known or not held): while there are any, rounds follow
each other every ``sync_interval_s``, so that news reach everybody in O(log N) of these. *Size*: a round says
one mark per node, so rounds without news, which only carry beats, become rarer with the cluster, from
``FREE_NODES`` nodes on; their cost per second then stays what it is for that many. *Strain*: a peer that
takes long to answer, or an agent whose own rounds come late, is drowning, and more requests would drown it:
the pause is at least the usual answering time, so that machines that are too small for their number of agents
are slow and no more. Only answers are measured: a network that loses messages slows nobody down.
"""

from __future__ import annotations

from scoutd.agent.settings import NS_PER_S, ExchangeSettings

FREE_NODES = 64
MOST_STRETCH = 8
"""Bounds the pause without news, and with it the time until a silent node is missed."""

LATE_FACTOR = 4
"""A request passes four queues: ours and theirs, there and back; where ours is late, all may be."""

TRIP_WEIGHT = 0.125
LATE_DECAY = 0.75


class Pace:
    """``late_ns``: how late this agent's own rounds come of late, as its driver measures it."""

    def __init__(self, settings: ExchangeSettings) -> None:
        self.late_ns = 0
        self._interval_ns = int(settings.sync_interval_s * NS_PER_S)
        self._trip_ns = 0.0
        self._news = 0

    def took(self, trip_ns: int) -> None:
        """A synchronisation was answered after this time."""
        self._trip_ns += TRIP_WEIGHT * (trip_ns - self._trip_ns)

    def late(self, late_ns: int) -> None:
        """The driver came so much later than it had wanted to."""
        self.late_ns = max(late_ns, int(self.late_ns * LATE_DECAY))

    def next_ns(self, news: int, nodes: int) -> int:
        """The pause before the next round. ``news`` counts what was learned so far."""
        fresh, self._news = news != self._news, news
        return self._strained(self._interval_ns) if fresh else self.slowest_ns(nodes)

    def slowest_ns(self, nodes: int) -> int:
        """The pause without news."""
        stretch = min(MOST_STRETCH, max(1.0, nodes / FREE_NODES))
        return self._strained(int(stretch * self._interval_ns))

    def _strained(self, pause_ns: int) -> int:
        return max(pause_ns, int(max(self._trip_ns, self.late_ns)))
