"""Reads one rank's shared-memory file, safely and cheaply.

Safely: the file is opened without following a link and without waiting (a FIFO would hang the agent), must
be a regular file of the right owner and size, and is read with ``pread``, never mapped. Cheaply: a pass
compares the sequence numbers of a section's copies with those of the last pass and decodes only the slots
whose numbers moved; HEADER and GROUPS are read when they may have changed, CALLS now and then, PENDING,
RECORDER and NOTES only when somebody asks for the whole picture (``refresh(whole=True)``).

A slot of which no copy is valid is torn: it is read again up to three times, then its last valid record
is kept and its section named in ``torn``. Torn bytes are never evidence.
"""

from __future__ import annotations

import os
import stat
import struct
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from scoutd.daemon.observe.locks import lock_holder
from scoutd.proto import shm

Record = TypeVar("Record")

RETRIES: Final = 3
GROUPS_EVERY: Final = 8
"""Passes between two looks at all 128 group slots: 2 s at four passes a second."""

MOST_COMMANDS: Final = 1 << 48
"""More than an observer writes in its life; a larger sequence was never one."""

OPEN_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@lru_cache
def _numbers_of(copy_bytes: int, copies: int) -> struct.Struct:
    """Unpacks the sequence number of every copy, and skips the rest."""
    return struct.Struct("<" + f"Q{copy_bytes - 8}x" * copies)


class Table(Generic[Record]):
    """The decoded slots of one section and the sequence numbers they were decoded from."""

    def __init__(self, section: shm.Section[Record]) -> None:
        self.section: Final = section
        self.records: Final[dict[int, Record]] = {}
        self._numbers: tuple[int, ...] = ()

    def update(self, data: bytes, base: int, slots: int) -> bool:
        """Decodes what moved in the first ``slots`` slots of ``data``; False if some slot is torn."""
        section = self.section
        pattern = _numbers_of(section.copy_bytes, slots * section.copies)
        start = section.offset - base
        if start + pattern.size > len(data):
            raise shm.LayoutError(f"section {section.name}: truncated")
        before, now = self._numbers, pattern.unpack_from(data, start)
        if before[: len(now)] == now:
            return True
        torn = False
        copies = section.copies
        for at in range(0, len(now), copies):
            numbers = now[at : at + copies]
            if numbers == before[at : at + copies] or not any(numbers):
                continue
            record = shm.read(data, base, section, at // copies)
            if record is None:
                torn = True
                # Zeros stand for "not decoded": the next pass reads the slot again.
                now = now[:at] + (0,) * copies + now[at + copies :]
            else:
                self.records[at // copies] = record
        self._numbers = now + before[len(now) :]
        return not torn

    def first(self) -> Record | None:
        return self.records.get(0)


class RankFile:
    """One open file. ``header`` is who writes it, the tables hold the rest. ``whole``: the last refresh
    read every section. ``torn``: sections with a slot that stayed torn over every retry when last read.

    Raises OSError or LayoutError where the file cannot be believed, on opening and on ``refresh``.
    """

    def __init__(self, name: str, dir_fd: int, uid: int) -> None:
        self.torn: Final[set[str]] = set()
        self.whole = False
        self._passes = 0
        self._sequence = 0
        self.fd, self.writable = _open(name, dir_fd)
        try:
            self.inode: Final = _check(self.fd, uid)
            shm.check_prefix(os.pread(self.fd, shm.PREFIX.size, 0))
            self.heartbeat: Final = Table(shm.HEARTBEAT)
            self.progress: Final = Table(shm.PROGRESS)
            self.recorder: Final = Table(shm.RECORDER)
            self.pending: Final = Table(shm.PENDING)
            self.counters: Final = Table(shm.COUNTERS)
            self.groups: Final = Table(shm.GROUPS)
            self.calls: Final = Table(shm.CALLS)
            self.history: Final = Table(shm.HISTORY)
            self.notes: Final = Table(shm.NOTES)
            self.topology: Final = Table(shm.TOPOLOGY)
            self.discovery: Final = Table(shm.DISCOVERY)
            self._header: Final = Table(shm.HEADER)
            self._read([self._header])
            if self._header.first() is None:
                raise shm.LayoutError("no valid header")
        except BaseException:
            os.close(self.fd)
            raise

    @property
    def header(self) -> shm.Header:
        header = self._header.first()
        assert header is not None
        return header

    def refresh(self, whole: bool) -> None:
        """The tables say what the file says now. Without ``whole``: heartbeat, progress, counters, and
        sometimes the calls."""
        self.whole = whole
        self._read([self.heartbeat, self.progress])
        if self._passes % GROUPS_EVERY == 0 or whole:
            self._read([self.counters, self.groups])
            self._read([self.topology])
            self._read([self.discovery])
            self._read([self._header])
        else:
            # One slot more than is known, so that a new group is seen in the pass in which it appears.
            self._read([self.counters], slots=self._span())
            if self._counts_unknown_group():
                self._read([self.groups])
        if whole:
            self._read([self.recorder, self.pending])
            self._read([self.history], slots=self._span() * shm.HISTORY_DEPTH)
        if whole or self._passes % GROUPS_EVERY == 0:
            self._read([self.calls])
        if whole:
            self._read([self.notes])
        self._passes += 1

    def lock_holder(self) -> int | None:
        """The pid that holds the writer's lock, as this PID namespace sees it (0: in another one).
        None: the lock is free."""
        return lock_holder(self.fd)

    def announce(self, observer_pid: int, now_ns: int, interval_ns: int, address: str = "") -> None:
        """The shim can read who observes it, when it last looked, and where other agents reach it. No effect
        without write access. Raises OSError or LayoutError where the file cannot be believed."""
        if not self.writable:
            return
        if not self._sequence:
            self._sequence = self._last_sequence()
        self._sequence += 1
        record = shm.Command(observer_pid, now_ns, interval_ns, address)
        at = shm.COMMAND.position(0, self._sequence)
        os.pwrite(self.fd, shm.seal(shm.COMMAND.codec.pack(record), self._sequence), at + 8)
        os.pwrite(self.fd, shm.SEQUENCE.pack(self._sequence), at)

    def _last_sequence(self) -> int:
        """That of the newest command in the file, an earlier observer's; 0 where it is nonsense."""
        data = os.pread(self.fd, shm.COMMAND.size, shm.COMMAND.offset)
        if len(data) < shm.COMMAND.size:
            raise shm.LayoutError("cut short")
        copies = range(shm.COMMAND.copies)
        found: int = max(shm.SEQUENCE.unpack_from(data, k * shm.COMMAND.copy_bytes)[0] for k in copies)
        return found if found < MOST_COMMANDS else 0

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _span(self) -> int:
        """Slots up to that of the last known group, and one more."""
        return min(max(self.groups.records, default=-1) + 2, shm.COUNTERS.slots)

    def _counts_unknown_group(self) -> bool:
        groups = self.groups.records
        return any(
            slot not in groups or groups[slot].group != counter.group
            for slot, counter in self.counters.records.items()
        )

    def _read(self, tables: list[Table[Any]], slots: int | None = None) -> None:
        """Reads neighbouring sections with one pread, again while a slot is torn."""
        base = tables[0].section.offset
        last = tables[-1].section
        end = last.end if slots is None else base + slots * last.copies * last.copy_bytes
        names = {table.section.name for table in tables}
        for _ in range(RETRIES + 1):
            data = os.pread(self.fd, end - base, base)
            torn = [t.section.name for t in tables if not t.update(data, base, slots or t.section.slots)]
            if not torn:
                break
        self.torn.difference_update(names)
        self.torn.update(torn)


def _open(name: str, dir_fd: int) -> tuple[int, bool]:
    """Read and write where allowed (the COMMAND record), else read only."""
    try:
        return os.open(name, os.O_RDWR | OPEN_FLAGS, dir_fd=dir_fd), True
    except PermissionError:
        return os.open(name, os.O_RDONLY | OPEN_FLAGS, dir_fd=dir_fd), False


def _check(fd: int, uid: int) -> int:
    """The inode of a file that may be believed."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise shm.LayoutError("not a regular file")
    if status.st_uid != uid:
        raise shm.LayoutError(f"belongs to uid {status.st_uid}, not {uid}")
    if status.st_size != shm.FILE_SIZE:
        raise shm.LayoutError(f"{status.st_size} bytes, expected {shm.FILE_SIZE}")
    return status.st_ino
