"""Watchers: everyone is told in order, nobody is waited for."""

from __future__ import annotations

import asyncio

from scoutd.daemon.store import Entry
from scoutd.daemon.watchers import Watchers


def entry(identity: str) -> Entry:
    return Entry(identity, "j", 1, "r", "OPEN", b"")


def test_changes_arrive_in_order_and_end_with_none() -> None:
    async def scenario() -> list[Entry | None]:
        watchers = Watchers()
        watcher = watchers.add()
        assert watcher is not None
        watchers.publish(entry("a"))
        watchers.publish(entry("b"))
        watchers.close()
        return [await watcher.next() for _ in range(3)]

    assert asyncio.run(scenario()) == [entry("a"), entry("b"), None]


def test_slow_watcher_is_dropped_after_what_it_holds_and_others_go_on() -> None:
    async def scenario() -> None:
        watchers = Watchers(length=2)
        slow, quick = watchers.add(), watchers.add()
        assert slow is not None
        assert quick is not None
        for name in "abc":
            watchers.publish(entry(name))
            assert await quick.next() == entry(name)
        assert [await slow.next() for _ in range(3)] == [entry("a"), entry("b"), None]
        assert slow.lost
        assert not quick.lost
        assert (len(watchers), watchers.dropped) == (1, 1)

    asyncio.run(scenario())


def test_number_of_watchers_is_bounded() -> None:
    async def scenario() -> None:
        watchers = Watchers(limit=1)
        first = watchers.add()
        assert first is not None
        assert watchers.add() is None
        watchers.remove(first)
        assert watchers.add() is not None

    asyncio.run(scenario())
