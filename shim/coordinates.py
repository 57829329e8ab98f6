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
from typing import Final, NamedTuple

from scoutd.proto.shm import HEAD, PROGRESS, Phase, encode_text
from scoutd.shim.shmfile import ShmFile

SAMPLE_MASK: Final = 63
"""One publication in 64 is timed; the estimate of the shim's cost is that sample times 64."""

_TEXT: Final = 96
_LENGTH: Final = PROGRESS.codec.struct.size
_PACK: Final = PROGRESS.codec.struct.pack
_HEAD: Final = HEAD.pack
_STRIDE: Final = PROGRESS.copy_bytes
_crc: Final = zlib.crc32
_now: Final = time.monotonic_ns

_AFTER: Final[dict[int, bytes]] = {
    Phase.FORWARD: b"after forward",
    Phase.EVAL: b"after eval forward",
    Phase.BACKWARD: b"after backward",
    Phase.OPTIMIZER: b"after optimizer step",
}


def encode(operation: str) -> bytes:
    """The operation's name as it is stored."""
    return encode_text(operation, _TEXT)


class Entry(NamedTuple):
    """A boundary that a thread is inside. ``hooked``: nothing guarantees that its end is seen."""

    phase: int
    operation: bytes
    waiting: int
    hooked: bool


class Writer:
    """One thread's slot and stack. ``busy``: inside a published call, calls below it are its own."""

    __slots__ = ("_free", "base", "busy", "sequence", "slot", "stack", "thread")

    def __init__(self, slot: int, free: deque[tuple[int, int]], sequence: int) -> None:
        self.thread = threading.get_native_id()
        self.slot = slot
        self.base = PROGRESS.offset + max(slot, 0) * PROGRESS.copies * _STRIDE
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
        self._ordinal = itertools.count(1)
        self._local = threading.local()
        self._free: deque[tuple[int, int]] = deque((slot, 0) for slot in range(PROGRESS.slots))
        self._idle = encode("before the first boundary")

    @property
    def writer(self) -> Writer:
        """The calling thread's writer; slot -1 if all are taken, then nothing is published."""
        try:
            return self._local.writer  # type: ignore[no-any-return]
        except AttributeError:
            return self._new_writer()

    def _new_writer(self) -> Writer:
        try:
            slot, sequence = self._free.popleft()
        except IndexError:
            slot, sequence = -1, 0
        writer = Writer(slot, self._free, sequence)
        self._local.writer = writer
        return writer

    def publish(self, writer: Writer, phase: int, operation: bytes, waiting: int) -> None:
        """The coordinate is the newest of the writer's slot."""
        if writer.slot < 0:
            self.file.dropped += 1
            return
        now = _now()
        ordinal = next(self._ordinal)
        self.last_ordinal = ordinal
        sequence = writer.sequence + 1
        writer.sequence = sequence
        payload = _PACK(writer.thread, now, self.step, ordinal, phase, waiting, operation)
        at = writer.base + (sequence & 1) * _STRIDE
        file = self.file
        file.view[at + 8 : at + 16 + _LENGTH] = _HEAD(_crc(payload, sequence & 0xFFFFFFFF), _LENGTH) + payload
        file.words[at >> 3] = sequence
        if not ordinal & SAMPLE_MASK:
            self.cost_ns += (_now() - now) * (SAMPLE_MASK + 1)

    def enter(self, phase: int, operation: bytes, waiting: int = 0) -> int:
        """A scoped boundary has begun; the result goes to ``leave``."""
        writer = self.writer
        depth = len(writer.stack)
        writer.stack.append(Entry(phase, operation, waiting, False))
        self.publish(writer, phase, operation, waiting)
        return depth

    def leave(self, depth: int) -> None:
        """The scoped boundary entered at ``depth`` is over, and all above it."""
        writer = self.writer
        stack = writer.stack
        if depth < len(stack):
            left = stack[depth]
            del stack[depth:]
            self._publish_enclosing(writer, left)

    def enter_hooked(self, phase: int, operation: bytes) -> None:
        """A boundary has begun whose end may not be seen."""
        writer = self.writer
        stack = writer.stack
        if stack:
            self._cut(stack, operation)
        stack.append(Entry(phase, operation, 0, True))
        self.publish(writer, phase, operation, 0)

    def leave_hooked(self, operation: bytes) -> None:
        """The newest boundary with this operation is over; nothing happens if there is none."""
        writer = self.writer
        stack = writer.stack
        for depth in range(len(stack) - 1, -1, -1):
            entry = stack[depth]
            if entry.operation is operation:
                del stack[depth:]
                self._publish_enclosing(writer, entry)
                return

    def replace(self, phase: int, operation: bytes) -> None:
        """The thread's innermost coordinate of this phase now names ``operation``; it is begun if there
        is none (a device thread of autograd has no scope of its own)."""
        writer = self.writer
        stack = writer.stack
        if stack and stack[-1].phase == phase:
            stack[-1] = stack[-1]._replace(operation=operation)
        self.publish(writer, phase, operation, 0)

    def drop_stale(self) -> None:
        """Hooked entries at the top of the calling thread's stack are gone: their end was missed."""
        stack = self.writer.stack
        while stack and stack[-1].hooked:
            stack.pop()

    def _publish_enclosing(self, writer: Writer, left: Entry) -> None:
        if writer.stack:
            phase, operation, waiting, _ = writer.stack[-1]
            self.publish(writer, phase, operation, waiting)
            return
        after = _AFTER.get(left.phase) or b"after " + left.operation[: _TEXT - 6]
        self.publish(writer, Phase.BETWEEN, after, 0)

    @staticmethod
    def _cut(stack: list[Entry], operation: bytes) -> None:
        for depth, entry in enumerate(stack):
            if entry.operation is operation and entry.hooked:
                del stack[depth:]
                return
