"""Which agents a probe tells of beside its sender: those that are new or have left, then random ones.

News of an agent is told on O(log N) times by everybody who hears it. Many unknown agents at once are no news:
then everybody knows them but us.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable
from typing import Final

FRESH_FACTOR: Final = 8
"""A probe has room for this many times the usual piggyback while agents are arriving: all N then know of a
new one after O(log N) probe intervals, not N of them."""


class Piggyback:
    """``size``: how many agents a probe tells of while there are no news."""

    def __init__(self, me: str, size: int, rng: random.Random) -> None:
        self._me: Final = me
        self._size: Final = size
        self._random: Final = rng
        self._fresh: Final[dict[str, int]] = {}

    @property
    def news(self) -> bool:
        """Somebody has still to be told of."""
        return bool(self._fresh)

    @property
    def room(self) -> int:
        """How many agents with news one probe tells of at most."""
        return FRESH_FACTOR * self._size

    def add(self, nodes: Iterable[str], among: int) -> None:
        """There is news of these, in a cluster of ``among`` nodes."""
        self._fresh.update(dict.fromkeys(nodes, 2 * math.ceil(math.log2(max(2, among)))))

    def choose(self, nodes: Collection[str]) -> list[str]:
        """Whom the next probe tells of, out of all ``nodes``, this one apart."""
        chosen = list(self._fresh)[: self.room]
        for node in chosen:
            self._fresh[node] -= 1
            if not self._fresh[node]:
                del self._fresh[node]
        others = [node for node in nodes if node != self._me]
        left = max(0, self._size - len(chosen))
        return chosen + self._random.sample(others, min(left, len(others)))
