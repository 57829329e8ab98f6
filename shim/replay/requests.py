"""Replays that somebody asked for: from the request in shared memory to the steps at which they run.

All ranks of a peer group must replay after the same step, or they would compare different parameters. So the
group's first rank, when it reads a request, chooses a step far enough ahead and tells it (``channel``); the
others listen for it. A rank that learns of it too late does not take part: its evidence is missing, which is
never agreement and blames nobody. A request that has expired before it was begun is refused.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from scoutd.proto import replay
from scoutd.shim.replay.cadence import Due, Order, order_of, start_of
from scoutd.shim.replay.channel import Channel
from scoutd.shim.replay.recipes import Peers, Recipe

MAX_ORDERS: Final = 8
MAX_TIMES: Final = 64


class Requests:
    """``finished``: the last request that was carried out or refused, 0 before the first."""

    def __init__(self, rank: int, channel: Channel) -> None:
        self.finished = 0
        self._rank: Final = rank
        self._channel: Final = channel
        self._read = 0
        self._waiting: replay.Request | None = None
        self._note = ""
        self._starts: Final[deque[tuple[replay.Request, int]]] = deque(maxlen=MAX_ORDERS)
        self._orders: list[Order] = []

    def read(self, request: replay.Request, now_ns: int) -> None:
        """On the channel's thread: the request waits for the next step, or has expired."""
        if request.request and request.request != self._read:
            self._read = request.request
            self._waiting = request
        waiting = self._waiting
        if waiting is not None and now_ns > waiting.expires_ns:
            self._waiting = None
            self._channel.forget(self._note)
            self.finished = waiting.request

    def take(self, step: int, step_s: float, recipes: Sequence[Recipe], variants: int) -> None:
        """After ``step``: a request that waits has a start, or its start is listened for."""
        request, peers = self._waiting, _peers(recipes)
        if request is not None and peers is not None and time.monotonic_ns() <= request.expires_ns:
            note = f"{peers.group:016x}/request/{request.request}"
            if peers.leader == self._rank:
                self._waiting = None
                start = start_of(step, step_s) if len(peers.ranks) > 1 else step + 2
                if len(peers.ranks) > 1:
                    self._channel.tell(note, str(start).encode())
                self._starts.append((request, start))
            elif note != self._note:
                self._note = note
                self._channel.ask(note, lambda content: self._hear(request, content))
        while self._starts:
            self._order(*self._starts.popleft(), step, recipes, variants)

    def _hear(self, request: replay.Request, content: bytes) -> None:
        """On the channel's thread: the first rank has chosen a step."""
        self._starts.append((request, int(content)))
        self._waiting = None

    def _order(
        self, request: replay.Request, start: int, step: int, recipes: Sequence[Recipe], variants: int
    ) -> None:
        wanted = [recipe.index for recipe in recipes if not request.recipe or recipe.recipe == request.recipe]
        if start <= step + 1 or not wanted or len(self._orders) >= MAX_ORDERS:
            self.finished = request.request
            return
        times = min(MAX_TIMES, max(1, request.variants))
        at_once = 1 if request.recipe else variants
        self._orders.append(order_of(request.request, start, wanted, times, at_once))

    def due(self, step: int) -> list[Due]:
        return [due for order in self._orders for due in order.due(step)]

    def done(self, step: int) -> None:
        """Orders that are through after ``step`` are finished."""
        for order in self._orders:
            if order.end <= step + 1:
                self.finished = order.request
        self._orders = [order for order in self._orders if order.end > step + 1]


def _peers(recipes: Sequence[Recipe]) -> Peers | None:
    """Those of the first recipe that knows its own."""
    return next((recipe.peers for recipe in recipes if recipe.peers is not None), None)
