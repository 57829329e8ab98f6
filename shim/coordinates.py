"""Progress coordinates: what every thread of this rank is doing, written before it does it.

Each thread that passes a boundary owns one PROGRESS slot and a small stack of the boundaries it is inside.
Entering publishes the new coordinate; leaving publishes the enclosing one, or BETWEEN ("after optimizer
step") when nothing encloses it. ``ordinal`` grows with every publication of the process.

Two kinds of boundary differ in how they end. *Scoped* ones (a call wrapped by try/finally) always end:
``leave(depth)`` cuts the stack back to where it was. *Hooked* ones (module and optimizer hooks) have no
end when the user's code raises: their stale entries are cut when an enclosing scope ends, when the same
boundary is entered again, or when an optimizer step begins.

This is the shim's hottest path (≤ 2 µs): payloads are packed with pre-encoded operation names.
"""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections import deque
from typing import Final

from scoutd.proto.shm import HEAD, PROGRESS, Phase, encode_text
from scoutd.shim.shmfile import ShmFile

SAMPLE_MASK: Final = 63
"""One publication in 64 is timed; the estimate of the shim's cost is that sample times 64."""

_TEXT: Final = 96
_LENGTH: Final = PROGRESS.codec.struct.size
_PACK: Final = PROGRESS.codec.struct.pack
_HEAD: Final = HEAD.pack
_crc: Final = zlib.crc32
_now: Final = time.monotonic_ns

_BETWEEN: Final = int(Phase.BETWEEN)
_AFTER: Final[dict[int, bytes]] = {
    int(Phase.FORWARD): b"after forward",
    int(Phase.EVAL): b"after eval forward",
    int(Phase.BACKWARD): b"after backward",
    int(Phase.OPTIMIZER): b"after optimizer step",
}
MAX_DEPTH: Final = 64
"""A stack this deep holds entries whose end was missed."""

Entry = tuple[int, bytes, int, bool]
"""A boundary that a thread is inside: phase, operation, waiting, hooked (its end may not be seen)."""


def encode(operation: str) -> bytes:
    """The operation's name as it is stored."""
    return encode_text(operation, _TEXT)


def _place(slot: int, copy: int) -> tuple[slice, int]:
    """Where a copy of a slot keeps its sealed payload, and which word is its sequence."""
    at = PROGRESS.position(max(slot, 0), copy)
    return slice(at + 8, at + 16 + _LENGTH), at >> 3


class Writer:
    """One thread's slot and stack. ``busy``: inside a published call, calls below it are its own."""

    __slots__ = ("_free", "busy", "places", "sequence", "slot", "stack", "thread")

    def __init__(self, slot: int, free: deque[tuple[int, int]], sequence: int) -> None:
        self.thread = threading.get_native_id()
        self.slot = slot
        self.places = _place(slot, 0), _place(slot, 1)
        self.sequence = sequence
        self.stack: list[Entry] = []
        self.busy = False
        self._free = free

    def __del__(self) -> None:
        if self.slot >= 0:
            self._free.append((self.slot, self.sequence))


class Coordinates:
    """All writers of the process. Never raises on its hot path."""

    def __init__(self, file: ShmFile) -> None:
        self.file: Final = file
        self.step = 0
        self.cost_ns = 0
        self.last_ordinal = 0
        self.local: Final = threading.local()
        """``local.writer`` is the thread's writer once it has one: hot paths look there first."""
        self._ordinal = itertools.count(1)
        self._free: deque[tuple[int, int]] = deque((slot, 0) for slot in range(PROGRESS.slots))

    @property
    def writer(self) -> Writer:
        """The calling thread's writer; slot -1 if all are taken, then nothing is published."""
        found: Writer | None = getattr(self.local, "writer", None)
        if found is None:
            found = self._new_writer()
        return found

    def _new_writer(self) -> Writer:
        try:
            slot, sequence = self._free.popleft()
        except IndexError:
            slot, sequence = -1, 0
        writer = Writer(slot, self._free, sequence)
        self.local.writer = writer
        return writer

    def publish(self, writer: Writer, phase: int, operation: bytes, waiting: int) -> None:
        """The coordinate is the newest of the writer's slot."""
        if writer.slot < 0:
            self.file.dropped += 1
            return
        now = _now()
        self.last_ordinal = ordinal = next(self._ordinal)
        writer.sequence = sequence = writer.sequence + 1
        payload = _PACK(writer.thread, now, self.step, ordinal, phase, waiting, operation)
        where, word = writer.places[sequence & 1]
        file = self.file
        file.view[where] = _HEAD(_crc(payload, sequence), _LENGTH) + payload  # crc32 takes 32 bits of it
        file.words[word] = sequence
        if not ordinal & SAMPLE_MASK:
            self.cost_ns += (_now() - now) * (SAMPLE_MASK + 1)

    def enter(self, phase: int, operation: bytes, waiting: int = 0) -> int:
        """A scoped boundary has begun; the result goes to ``leave``."""
        writer = getattr(self.local, "writer", None) or self.writer
        stack = writer.stack
        stack.append((phase, operation, waiting, False))
        self.publish(writer, phase, operation, waiting)
        return len(stack) - 1

    def leave(self, depth: int) -> None:
        """The scoped boundary entered at ``depth`` is over, and all above it."""
        writer = getattr(self.local, "writer", None) or self.writer
        stack = writer.stack
        if depth < len(stack):
            left = stack[depth]
            del stack[depth:]
            self._publish_enclosing(writer, left)

    def enter_hooked(self, writer: Writer, phase: int, operation: bytes) -> None:
        """A boundary has begun whose end may not be seen."""
        stack = writer.stack
        if len(stack) >= MAX_DEPTH:
            stack.clear()
        stack.append((phase, operation, 0, True))
        self.publish(writer, phase, operation, 0)

    def leave_hooked(self, writer: Writer, operation: bytes) -> None:
        """The newest boundary with this operation is over; nothing happens if there is none."""
        stack = writer.stack
        for depth in range(len(stack) - 1, -1, -1):
            if stack[depth][1] is operation:
                left = stack[depth]
                del stack[depth:]
                self._publish_enclosing(writer, left)
                return

    def replace(self, phase: int, operation: bytes) -> None:
        """The thread's innermost coordinate of this phase now names ``operation``; it is published alone
        if there is none (a device thread of autograd has no scope of its own)."""
        writer = self.writer
        stack = writer.stack
        if stack and stack[-1][0] == phase:
            stack[-1] = (phase, operation, 0, stack[-1][3])
        self.publish(writer, phase, operation, 0)

    def drop_stale(self, writer: Writer) -> None:
        """Hooked entries at the top of the stack are gone: their end was missed."""
        stack = writer.stack
        while stack and stack[-1][3]:
            stack.pop()

    def drop_repeated(self, writer: Writer, operation: bytes) -> None:
        """A hooked entry of the same operation, and what is above it, is gone: its end was missed."""
        stack = writer.stack
        for depth, entry in enumerate(stack):
            if entry[1] is operation and entry[3]:
                del stack[depth:]
                return

    def _publish_enclosing(self, writer: Writer, left: Entry) -> None:
        if writer.stack:
            phase, operation, waiting, _ = writer.stack[-1]
            self.publish(writer, phase, operation, waiting)
            return
        after = _AFTER.get(left[0]) or b"after " + left[1][: _TEXT - 6]
        self.publish(writer, _BETWEEN, after, 0)
