"""Notes and counts reach other ranks through the store, and nobody ever waits for one."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from scoutd.shim.guard import LIMIT, Guard
from scoutd.shim.replay.channel import MAX_BEHIND, PIECE, POLL_S, Channel


def channel_of(store: Any) -> Channel:
    """Of a store that is no torch store, too."""
    channel = Channel(None, Guard(), lambda: None)
    vars(channel)["_store"] = store
    return channel


def test_notes_of_any_size_reach_other_ranks_through_the_store() -> None:
    store, heard = dist.HashStore(), []
    first, other = (Channel(store, Guard(), lambda: None) for _ in range(2))
    content = bytes(range(256)) * (PIECE // 100)
    other.ask("note", heard.append)
    other.turn(1.0)
    assert heard == []
    first.tell("note", content)
    first.turn(1.0)
    other.turn(100.0)
    assert heard == [content]
    other.turn(200.0)
    assert heard == [content]


def test_counts_are_heard_of_when_all_have_counted() -> None:
    store, heard = dist.HashStore(), []
    first, other = (Channel(store, Guard(), lambda: None) for _ in range(2))
    first.await_count("n", 2, heard.append, 1.0)
    for now in (100.0, 200.0, 300.0):
        first.turn(now)
        assert heard == []
        other.count_up("n")
        other.turn(now)
        if now == 200.0:
            break
    first.turn(400.0)
    assert heard == [b""]


def test_a_note_that_is_written_again_is_heard_again() -> None:
    store, heard = dist.HashStore(), []
    first, other = (Channel(store, Guard(), lambda: None) for _ in range(2))

    def hear(content: bytes) -> None:
        heard.append(content)
        other.ask("note", hear, seen=content)

    other.ask("note", hear)
    for now, content in enumerate((b"a", b"a", b"b"), 1):
        first.tell("note", content)
        first.turn(now)
        for again in range(3):
            other.turn(1000.0 * now + 100 * again)
    assert heard == [b"a", b"b"]


def test_a_large_note_that_was_dropped_is_gone() -> None:
    store = dist.HashStore()
    channel = Channel(store, Guard(), lambda: None)
    channel.tell("note", bytes(3 << 20))
    channel.turn(1.0)
    assert store.num_keys() >= 4
    channel.drop("note")
    channel.turn(2.0)
    assert store.num_keys() == 0


def test_a_note_that_is_dropped_while_it_is_read_is_not_there_and_nobody_waits_for_it() -> None:
    """The trainer's own calls would wait behind: its connection has one lock."""

    class Dropping:
        """Another rank drops the note after so many looks."""

        def __init__(self, looks: int) -> None:
            self.looks = looks
            self.store = dist.HashStore()
            self.store.set_timeout(timedelta(seconds=30))

        def __getattr__(self, name: str) -> Any:
            if name in ("check", "get", "compare_set"):
                if not self.looks:
                    channel_of(self.store)._delete("note")
                self.looks -= 1
            return getattr(self.store, name)

    began = time.monotonic()
    for looks in range(5):
        heard: list[bytes] = []
        channel = channel_of(Dropping(looks))
        channel.tell("note", bytes(2 * PIECE + 1))
        channel.ask("note", heard.append)
        channel.turn(1.0)
        assert len(heard) == int(looks >= 4)
    assert time.monotonic() - began < 10.0


def test_a_store_that_is_gone_is_no_error() -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("connection was closed")

    channel = channel_of(Gone())
    channel.ask("note", lambda _: None)
    channel.tell("another", b"")
    for now in range(2 * LIMIT):
        channel.turn(float(now))
    assert channel._guard.errors == 0


def test_a_store_whose_process_has_left_is_never_called_again() -> None:
    """torch writes a warning with a stack at every call."""

    class Left:
        calls = 0

        def __getattr__(self, name: str) -> Any:
            self.calls += 1
            raise dist.DistNetworkError("Broken pipe")

    left = Left()
    channel = channel_of(left)
    channel.ask("note", lambda _: None)
    for now in range(5):
        channel.tell("another", b"content")
        channel.turn(float(now))
    assert (left.calls, channel._guard.errors) == (1, 0)
    assert not channel._outbox
    assert channel.is_behind


def test_a_store_that_takes_nothing_is_told_nothing_large() -> None:
    class Busy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("timed out")

    channel = channel_of(Busy())
    for _ in range(MAX_BEHIND + 1):
        assert not channel.is_behind
        channel.count_up("n")
        channel.turn(1.0)
    assert channel.is_behind


def test_a_look_that_fails_costs_no_time_once_the_part_is_off() -> None:
    def broken() -> bool:
        raise KeyError("nothing")

    guard = Guard()
    channel = Channel(dist.HashStore(), guard, lambda: None)
    channel.await_that("note", broken, lambda _: None, 5.0)
    channel.begin(1)
    deadline = time.monotonic() + 20.0
    while not guard.disabled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert guard.disabled == "replay channel"
    assert channel._next_s(100.0) == 100.0 + POLL_S
    channel.stop()


def test_what_cannot_be_told_keeps_nothing_else_back() -> None:
    def unmade() -> bytes:
        raise TypeError("nothing")

    store, guard = dist.HashStore(), Guard()
    channel = Channel(store, guard, lambda: None)
    channel.tell_made("first", unmade)
    channel.tell("second", b"2")
    for now in (1.0, 2.0):
        guard.run("replay channel", lambda now=now: channel.turn(now), None)  # type: ignore[misc]
    assert guard.errors == 1
    assert store.num_keys() == 2


def test_in_a_forked_child_nobody_waits_for_the_parents_thread() -> None:
    channel = Channel(dist.HashStore(), Guard(), lambda: None)
    channel.ask("note", lambda _: None)
    channel._lock.acquire()
    channel.orphan()
    channel.forget("note")
