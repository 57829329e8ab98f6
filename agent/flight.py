"""Requests that are under way: to whom, of what kind, since when; and whether there is room for another.

Three bounds. All requests together: memory. Requests of one kind to one peer: those that wait long, because
the peer is slow, must not keep a probe from finding out that it is gone. Synchronisations: half of what is
allowed altogether, so that there is always room for probes.

A request that waits much longer than answers usually take does not count as *waiting* any more: on a network
that loses messages its answer will not come, and nothing would move until its time-out. It stays under way,
and if the answer comes it is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from scoutd.agent.messages import Outgoing, Request, Sync

MOST_OF_A_KIND = 2
"""To one peer: the last round's, and this one's."""


class Flight:
    """``most`` bounds all requests together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._began: dict[int, tuple[Outgoing, int]] = {}
        self._to: Counter[tuple[str, type[Request]]] = Counter()
        self._kinds: Counter[type[Request]] = Counter()

    def room(self, node: str, request: Request) -> bool:
        """One more request of this kind to this peer may begin."""
        kind = type(request)
        if len(self._began) >= self._most or self._to[node, kind] >= MOST_OF_A_KIND:
            return False
        return kind is not Sync or self._kinds[kind] < max(1, self._most // 2)

    def begin(self, sent: Outgoing, now_ns: int) -> None:
        kind = type(sent.request)
        self._began[id(sent)] = (sent, now_ns)
        self._to[sent.node, kind] += 1
        self._kinds[kind] += 1

    def end(self, sent: Outgoing) -> int | None:
        """When it began; None for a request that never did."""
        _, began_ns = self._began.pop(id(sent), (sent, None))
        if began_ns is None:
            return None
        kind = type(sent.request)
        self._kinds[kind] -= 1
        self._to[sent.node, kind] -= 1
        if not self._to[sent.node, kind]:
            del self._to[sent.node, kind]
        return began_ns

    def count(self, kind: type[Request]) -> int:
        """Requests of this kind under way."""
        return self._kinds[kind]

    def waiting(self, kind: type[Request], since_ns: int, away: Container[str]) -> int:
        """Those that began later than ``since_ns``, to peers that are not ``away``."""
        return sum(
            began_ns > since_ns and isinstance(sent.request, kind) and sent.node not in away
            for sent, began_ns in self._began.values()
        )

    def oldest_ns(self, kind: type[Request]) -> int | None:
        """When the oldest of this kind that is under way began, None if there is none."""
        return min((at for sent, at in self._began.values() if isinstance(sent.request, kind)), default=None)
