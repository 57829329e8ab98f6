"""Who is told of every change of a verdict, without ever waiting for them.

Each watcher has a bounded queue. One that does not keep up is dropped: its queue ends with None after what it
already holds, and the server tells it why. Publishing never blocks, so a stuck terminal cannot delay the next
verdict.
"""

from __future__ import annotations

import asyncio
from typing import Final

from scoutd.daemon.store import Entry

MAX_WATCHERS: Final = 64
QUEUE_LENGTH: Final = 256


class Watcher:
    """One subscription. ``lost`` is true once changes were missed."""

    def __init__(self, length: int) -> None:
        self._queue: Final[asyncio.Queue[Entry | None]] = asyncio.Queue()
        self._length: Final = length
        self.lost = False
        self.closed = False

    def offer(self, entry: Entry) -> None:
        """Queued, or the watcher is lost."""
        if self.closed:
            return
        if self._queue.qsize() >= self._length:
            self.lost = True
            self.close()
        else:
            self._queue.put_nowait(entry)

    def close(self) -> None:
        """After what is queued, ``next`` returns None."""
        if not self.closed:
            self.closed = True
            self._queue.put_nowait(None)

    async def next(self) -> Entry | None:
        """The next change; None when there will be no more."""
        return await self._queue.get()


class Watchers:
    """All subscriptions. ``dropped`` counts those that were too slow."""

    def __init__(self, limit: int = MAX_WATCHERS, length: int = QUEUE_LENGTH) -> None:
        self._limit: Final = limit
        self._length: Final = length
        self._watchers: Final[set[Watcher]] = set()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self) -> Watcher | None:
        """A new subscription, None if there are too many."""
        if len(self._watchers) >= self._limit:
            return None
        watcher = Watcher(self._length)
        self._watchers.add(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        watcher.close()
        self._watchers.discard(watcher)

    def publish(self, entry: Entry) -> None:
        """Every watcher that keeps up has the entry in its queue."""
        for watcher in list(self._watchers):
            watcher.offer(entry)
            if watcher.lost:
                self.dropped += 1
                self._watchers.discard(watcher)

    def close(self) -> None:
        for watcher in list(self._watchers):
            self.remove(watcher)
