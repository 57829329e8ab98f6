"""With whom an agent talks while nothing is wrong, and whom it asks first when something is.

Talking to a peer costs a connection, so an agent does not wander over all of them: it keeps a few
*partners*, a window over a shuffled list of all peers, probes them in turn, and moves the window on by one
peer each time round. Every peer is visited in time, connections are used again and again, and their number
does not grow with the cluster. Everybody chooses partners at random, so they form a random graph of degree
``count`` and more, in which news spreads in O(log N) rounds as it does in the complete one.

Who chose while few were known would keep to those few: the first agents of a job would be everybody's
partners. So once four times as many are known, a partner that was chosen before gives way at every turn.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Container, Iterator
from typing import Final

GROWTH: Final = 4


class Partners:
    """``count`` is the size of the window; with fewer peers everybody is a partner. ``nodes`` are all nodes,
    ``me`` among them."""

    def __init__(self, me: str, count: int, rng: random.Random) -> None:
        self._me = me
        self._count = count
        self._random = rng
        self._window: list[str] = []
        self._turn = 0
        self._order: list[str] = []
        self._among: dict[str, int] = {}
        self._drawn_among = 0

    def next(self, nodes: Collection[str]) -> str:
        """The peer whose turn it is, empty if there is none."""
        if self._turn >= len(self._window) and len(self._window) == self._count:
            self._window.pop(0)
        elder = next((n for n in self._window if len(nodes) >= GROWTH * self._among.get(n, 0)), None)
        if elder is not None:
            self._window.remove(elder)
        self._fill(nodes)
        if self._turn >= len(self._window):
            self._turn = 0
        self._turn += 1
        return self._window[self._turn - 1] if self._window else ""

    def sample(self, count: int, nodes: Collection[str], avoid: Container[str] = ()) -> list[str]:
        """``count`` partners in random order, others where too few can be used; whom to avoid only where
        there is nobody else."""
        self._fill(nodes)
        chosen: list[str] = []
        for pool in self._pools(nodes, avoid):
            fresh = [node for node in pool if node not in chosen]
            chosen += self._random.sample(fresh, min(count - len(chosen), len(fresh)))
            if len(chosen) >= count:
                break
        return chosen

    def _pools(self, nodes: Collection[str], avoid: Container[str]) -> Iterator[list[str]]:
        yield [node for node in self._window if node not in avoid]
        others = [node for node in nodes if node != self._me]
        yield [node for node in others if node not in avoid] or others

    def _fill(self, nodes: Collection[str]) -> None:
        """The window has ``count`` peers, as long as there are so many."""
        self._window = [node for node in self._window if node in nodes]
        while len(self._window) < min(self._count, len(nodes) - 1):
            if not self._order or len(nodes) >= GROWTH * self._drawn_among:
                self._drawn_among = len(nodes)
                self._order = [node for node in nodes if node != self._me]
                self._random.shuffle(self._order)
            node = self._order.pop()
            if node in nodes and node not in self._window:
                self._window.append(node)
                self._among[node] = len(nodes)
        self._among = {node: self._among[node] for node in self._window}
