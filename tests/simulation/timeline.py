"""Virtual time: a queue of calls, each at its nanosecond; nothing happens between them."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from scoutd.agent.settings import NS_PER_S

Call = Callable[[], None]


def ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)


class Timeline:
    """``now_ns`` is the world's own clock, which no agent sees. Calls of one moment run in their order."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._queue: list[tuple[int, int, Call]] = []
        self._order = count()

    @property
    def now_s(self) -> float:
        return self.now_ns / NS_PER_S

    def at(self, moment_ns: int, call: Call) -> None:
        heapq.heappush(self._queue, (max(moment_ns, self.now_ns), next(self._order), call))

    def after(self, delay_s: float, call: Call) -> None:
        self.at(self.now_ns + ns(delay_s), call)

    def run_until(self, moment_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Runs what is due up to ``moment_s``, or until ``stop`` says so."""
        end = ns(moment_s)
        while self._queue and self._queue[0][0] <= end and not stop():
            self.now_ns, _, call = heapq.heappop(self._queue)
            call()
        if not stop():
            self.now_ns = max(self.now_ns, end)
