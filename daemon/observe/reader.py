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
from typing import Any, Final

from scoutd.daemon.observe.locks import lock_holder
from scoutd.daemon.observe.replays import ReplayTables
from scoutd.daemon.observe.table import Table
from scoutd.proto import shm
from scoutd.proto.records import Record
from scoutd.proto.replay import Request

RETRIES: Final = 3
GROUPS_EVERY: Final = 8
"""Passes between two looks at all 128 group slots: 2 s at four passes a second."""

MOST_COMMANDS: Final = 1 << 48
"""More than an observer writes in its life; a larger sequence was never one."""

OPEN_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class RankFile:
    """One open file. ``header`` is who writes it, the tables hold the rest. ``whole``: the last refresh
    read every section. ``torn``: sections with a slot that stayed torn over every retry when last read.

    Raises OSError or LayoutError where the file cannot be believed, on opening and on ``refresh``.
    """

    def __init__(self, name: str, dir_fd: int, uid: int) -> None:
        self.torn: Final[set[str]] = set()
        self.whole = False
        self._passes = 0
        self._sequences: Final[dict[str, int]] = {}
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
            self.replay: Final = ReplayTables(self._read)
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

    def refresh_header(self) -> None:
        """The header says what the file says now."""
        self._read([self._header])

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
            self.read_calls()
        if whole:
            self._read([self.notes])
        self.replay.refresh(whole)
        self._passes += 1

    def read_calls(self) -> None:
        """The table of calls says what the file says now."""
        self._read([self.calls])

    def lock_holder(self) -> int | None:
        """The pid that holds the writer's lock, as this PID namespace sees it (0: in another one).
        None: the lock is free."""
        return lock_holder(self.fd)

    def announce(self, observer_pid: int, now_ns: int, interval_ns: int, address: str = "") -> None:
        """The shim can read who observes it, when it last looked, and where other agents reach it. No effect
        without write access. Raises OSError or LayoutError where the file cannot be believed."""
        if not self.writable:
            return
        self._hand_over(shm.COMMAND, shm.Command(observer_pid, now_ns, interval_ns, address))

    def request(self, request: Request) -> bool:
        """The shim can read that a replay is wanted; False without write access. Raises as ``announce``."""
        if self.writable:
            self._hand_over(shm.REQUEST, request)
        return self.writable

    def _hand_over(self, section: shm.Section[Record], record: Record) -> None:
        """The only record of a section that the agent writes is this one."""
        sequence = self._sequences.get(section.name) or self._last_sequence(section)
        self._sequences[section.name] = sequence = sequence + 1
        at = section.position(0, sequence)
        os.pwrite(self.fd, shm.seal(section.codec.pack(record), sequence), at + 8)
        os.pwrite(self.fd, shm.SEQUENCE.pack(sequence), at)

    def _last_sequence(self, section: shm.Section[Any]) -> int:
        """That of the newest record in the file, an earlier observer's; 0 where it is nonsense."""
        data = os.pread(self.fd, section.size, section.offset)
        if len(data) < section.size:
            raise shm.LayoutError("cut short")
        copies = range(section.copies)
        found: int = max(shm.SEQUENCE.unpack_from(data, k * section.copy_bytes)[0] for k in copies)
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
