"""What peers tell each other of replays, through the trainer's store and on a thread of its own.

A *note* is a name and bytes, written by the group's first rank and read by the others: ``templates/<n>``,
the calls that rank has learnt, ``request/<id>``, the step at which a request begins, and those of
``broadcast``. A *count* is a name that ranks add one to. Only ``set``, ``compare_set``, ``add`` and
``delete_key`` are used, so the thread never waits in the store, and a trainer that does keeps only this
thread waiting. ``get`` would wait for a key that has been deleted since somebody looked, and hold the
connection against the trainer. Large notes are cut: a TCPStore refuses values of more than 8 MiB.

The thread looks for what was asked for quickly at first and then ever less often. It also runs ``poll`` twice
a second, which looks at shared memory for requests.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from scoutd.shim.guard import Guard
from scoutd.shim.store import LET_GO_S

PART: Final = "replay channel"
STORE_ERRORS: Final = (RuntimeError, ValueError, OSError)
"""The store is busy, or what it gave makes no sense."""

ABSENT: Final = "scoutd: no such key"
"""Who expects this value of a key that is not there is given it by ``compare_set``, which sets nothing."""

PIECE: Final = 1 << 20
POLL_S: Final = 0.5
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 10.0
SLOWER: Final = 1.3
MAX_ASKED: Final = 64
MAX_BEHIND: Final = 12
"""A broadcast is six things to tell: its bytes are not kept for a store that takes nothing."""

MAX_PIECES: Final = 64


@dataclass
class _Asked:
    """``look`` returns what was asked for, None while it is not there."""

    name: str
    look: Callable[[], bytes | None]
    answer: Callable[[bytes], None]
    longest_s: float
    pause_s: float
    due_s: float = 0.0


class Channel:
    """One rank's end. ``store`` is the trainer's, None where there is none: then nothing is told or heard."""

    def __init__(self, store: Any, guard: Guard, poll: Callable[[], None]) -> None:
        self._store = None if store is None else c10d.PrefixStore("scoutd/", store)
        self.forgets: Final = not _is_file(store)
        """What is dropped is gone. A file keeps it, and would grow with every broadcast."""
        self._guard: Final = guard
        self._part: Final = guard.part(PART)
        self._poll: Final = poll
        self._prefix = ""
        self._outbox: Final[deque[Callable[[], object]]] = deque()
        self._asked: Final[dict[str, _Asked]] = {}
        self._lock = threading.Lock()
        self._wake: Final = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def begin(self, generation: int) -> None:
        """The thread runs. Keys carry the generation: a store may outlive one."""
        if self._thread is None and not self._stopped:
            self._prefix = f"{generation}/replay/"
            self._thread = threading.Thread(target=self._run, name="scoutd-replay", daemon=True)
            self._thread.start()

    def stop(self, most_s: float = 1.0) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(most_s)

    def let_go(self) -> None:
        """The trainer gives its store up."""
        self.stop(LET_GO_S)
        self._lose()

    def orphan(self) -> None:
        """In a forked child: nothing is told or heard, and who held the lock at the fork is not there."""
        self._lock = threading.Lock()
        self._lose()

    def _lose(self) -> None:
        """There is no store any more, and nothing is kept for it."""
        self._store = None
        self._outbox.clear()
        with self._lock:
            self._asked.clear()

    @property
    def is_behind(self) -> bool:
        """Nothing large should be told now: the store takes nothing, or there is none."""
        return self._store is None or len(self._outbox) > MAX_BEHIND

    def tell(self, name: str, content: bytes) -> None:
        """The note will be there for the others."""
        self._send(lambda: self._write(name, content))

    def tell_made(self, name: str, make: Callable[[], bytes]) -> None:
        """The same; the content is made on the channel's thread."""
        self._send(lambda: self._write(name, make()))

    def count_up(self, name: str) -> None:
        """The count will be one more."""
        self._send(lambda: self._add(name, 1))

    def drop(self, name: str) -> None:
        """The note or count will be gone, if the store can delete."""
        self._send(lambda: self._delete(name))

    def _send(self, action: Callable[[], object]) -> None:
        if self._store is not None:
            self._outbox.append(action)
            self._wake.set()

    def ask(
        self,
        name: str,
        answer: Callable[[bytes], None],
        seen: bytes | None = None,
        longest_s: float = LONGEST_PAUSE_S,
        first_s: float = FIRST_PAUSE_S,
    ) -> None:
        """``answer`` gets the note's content on the channel's thread, once it is there and not ``seen``.
        Between two looks there is ``first_s`` at first, ``longest_s`` at most."""

        def look() -> bytes | None:
            content = self._read(name)
            return None if content == seen else content

        self._await(_Asked(name, look, answer, longest_s, first_s))

    def await_count(self, name: str, least: int, answer: Callable[[bytes], None], longest_s: float) -> None:
        """``answer`` is called on the channel's thread, once the count is ``least``."""
        self.await_that(name, lambda: self._add(name, 0) >= least, answer, longest_s)

    def await_that(
        self, name: str, holds: Callable[[], bool], answer: Callable[[bytes], None], longest_s: float
    ) -> None:
        """``answer`` is called on the channel's thread, once this holds there."""
        self._await(_Asked(name, lambda: b"" if holds() else None, answer, longest_s, FIRST_PAUSE_S))

    def _await(self, asked: _Asked) -> None:
        with self._lock:
            if len(self._asked) < MAX_ASKED:
                self._asked.setdefault(asked.name, asked)
        self._wake.set()

    def forget(self, name: str) -> None:
        """The note is not looked for any more."""
        with self._lock:
            self._asked.pop(name, None)

    def _run(self) -> None:
        polled_s = 0.0
        while not self._stopped:
            now_s = time.monotonic()
            if now_s - polled_s >= POLL_S:
                polled_s = now_s
                self._guard.run("replay requests", self._poll, None)
            if self._store is not None:
                self._guard.run(PART, lambda now=now_s: self.turn(now), None)  # type: ignore[misc]
            self._wake.wait(max(0.0, self._next_s(polled_s) - time.monotonic()))
            self._wake.clear()

    def _next_s(self, polled_s: float) -> float:
        if not self._part.on:
            return polled_s + POLL_S
        with self._lock:
            return min([polled_s + POLL_S, *(asked.due_s for asked in self._asked.values())])

    def turn(self, now_s: float) -> None:
        """What is in the outbox is told, and notes that are due are looked for. A store that is busy is no
        error: later. One whose process has left does not come back, and torch warns at every call: never
        again. What fails otherwise is not told again."""
        try:
            while self._outbox:
                self._tell_first()
            with self._lock:
                due = [asked for asked in self._asked.values() if asked.due_s <= now_s]
            for asked in due:
                self._look(asked, now_s)
        except dist.DistNetworkError:
            self._lose()
        except STORE_ERRORS:
            with self._lock:
                for asked in self._asked.values():
                    asked.due_s = max(asked.due_s, now_s + POLL_S)

    def _tell_first(self) -> None:
        action = self._outbox.popleft()
        try:
            action()
        except STORE_ERRORS:
            self._outbox.appendleft(action)
            raise

    def _look(self, asked: _Asked, now_s: float) -> None:
        asked.due_s = now_s + asked.pause_s
        content = asked.look()
        if content is None:
            asked.pause_s = min(asked.longest_s, asked.pause_s * SLOWER)
            return
        self.forget(asked.name)
        asked.answer(content)

    def _write(self, name: str, content: bytes) -> None:
        """The pieces first, then how many there are: a reader that sees the number finds all."""
        assert self._store is not None
        pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)][:MAX_PIECES]
        for number, piece in enumerate(pieces):
            self._store.set(f"{self._prefix}{name}/{number}", piece)  # type: ignore[arg-type]  # bytes are taken
        self._store.set(f"{self._prefix}{name}", str(len(pieces)))

    def _add(self, name: str, number: int) -> int:
        assert self._store is not None
        return int(self._store.add(self._prefix + name, number))

    def _delete(self, name: str) -> None:
        """Some stores cannot."""
        assert self._store is not None
        with suppress(RuntimeError, NotImplementedError):
            pieces = 0
            while pieces < MAX_PIECES and self._store.delete_key(f"{self._prefix}{name}/{pieces}"):
                pieces += 1
            self._store.delete_key(self._prefix + name)

    def _read(self, name: str) -> bytes | None:
        """The note, None where it is not there, or not whole: it may be deleted while it is read."""
        count = self._value(name)
        if count is None or not 0 <= int(count) <= MAX_PIECES:
            return None
        pieces = []
        for number in range(int(count)):
            piece = self._value(f"{name}/{number}")
            if piece is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    def _value(self, key: str) -> bytes | None:
        """Of a key of ours, None where it is not there; nobody waits for it."""
        assert self._store is not None
        value: bytes = self._store.compare_set(self._prefix + key, ABSENT, ABSENT)
        return None if value == ABSENT.encode() else value


def _is_file(store: Any) -> bool:
    """Below its prefixes."""
    while isinstance(store, c10d.PrefixStore):
        store = store.underlying_store
    return isinstance(store, dist.FileStore)  # type: ignore[attr-defined]
