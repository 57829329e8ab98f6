"""The rank's own shared-memory file: made, locked, written, renamed, removed.

The file begins as ``<root>/<uid>/.pending/<pid>-<start_ticks>`` and is renamed to
``<root>/<uid>/<job>/<generation>/rank-<r>`` once the identity is known. Its blocks are allocated before it
is mapped: a full /dev/shm is then an OSError at attach and never a SIGBUS in the trainer. A POSIX record
lock on it is held for life; the kernel drops it at death, which is how the agent sees that a process of
another PID namespace is gone. (Closing *any* descriptor of the file would drop it too, so the file is
opened once.) The file outlives the process on purpose: what was written last is evidence.

Records are written as ``proto/shm.py`` describes. One writer per slot at a time; ``lock`` serialises the
slots that both the trainer's threads and the publisher thread write.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import threading
import time
from pathlib import Path
from typing import Final, TypeVar

from scoutd.proto import shm

PENDING_FOLDER: Final = ".pending"
GENERATION_FILE: Final = ".generation"
OBSERVER_LIMIT_NS: Final = 10_000_000_000
"""An observer that has not looked for this long is no longer there."""

RETRIES: Final = 20
VANISHED: Final = (FileNotFoundError, FileExistsError)
"""What making a folder raises while somebody removes it: ``mkdir(exist_ok=True)`` finds it there, asks
whether it is a folder, and it is gone."""


Record = TypeVar("Record")


def root_folder() -> Path:
    """SCOUTD_ROOT, else the layout's own root."""
    return Path(os.environ.get("SCOUTD_ROOT") or shm.ROOT)


def start_ticks(pid: int | str = "self") -> int:
    """Field 22 of /proc/pid/stat: with the pid it names one process for ever; 0 where unreadable."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])


class ShmFile:
    """The mapped file. Raises OSError from the constructor if it cannot be made, locked or allocated."""

    def __init__(self, root: Path) -> None:
        self.lock: Final = threading.RLock()
        self.dropped = 0
        self._fd, self.path = _new_file(root)
        self.user_folder: Final = self.path.parents[1]
        try:
            os.posix_fallocate(self._fd, 0, shm.FILE_SIZE)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._map = mmap.mmap(self._fd, shm.FILE_SIZE)
        except OSError:
            os.close(self._fd)
            self.path.unlink(missing_ok=True)
            raise
        self.view = memoryview(self._map)
        self.words = self.view.cast("Q")
        self._sequences: dict[tuple[int, int], int] = {}
        self.view[: shm.PREFIX.size] = shm.prefix()

    def publish(self, section: shm.Section[Record], slot: int, record: Record) -> None:
        """The record is the newest of its slot. For records off the hot path."""
        key = (section.offset, slot)
        with self.lock:
            sequence = self._sequences.get(key, 0) + 1
            self._sequences[key] = sequence
            shm.write(self.view, self.words, section, slot, sequence, record)

    def sequence_of(self, section: shm.Section[Record], slot: int) -> int:
        """The last sequence of a slot that ``keep_sequence`` remembered, 0 if it is fresh."""
        return self._sequences.get((section.offset, slot), 0)

    def keep_sequence(self, section: shm.Section[Record], slot: int, sequence: int) -> None:
        """A slot written by hand was left at ``sequence``; its next owner goes on from there."""
        self._sequences[section.offset, slot] = sequence

    def settle(self, job: str, generation: int, rank: int) -> None:
        """The file carries its final name; a file left there by an earlier process is replaced."""
        folder = self.user_folder / job / str(generation)
        target = folder / f"rank-{rank}"
        for attempt in range(RETRIES):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.rename(self.path, target)
                break
            except VANISHED:  # the agent removed an empty generation in between
                if attempt == RETRIES - 1:
                    raise
        self.path = target
        _remove_if_empty(self.user_folder / PENDING_FOLDER)

    @property
    def observed(self) -> bool:
        """Whether an agent has looked at this file within the observer limit."""
        command = self._command()
        return command is not None and time.monotonic_ns() - command.observed_ns < OBSERVER_LIMIT_NS

    @property
    def observer_address(self) -> str:
        """Where other nodes' agents reach the one that observes this file; empty if they cannot."""
        command = self._command()
        return command.address if command is not None else ""

    def _command(self) -> shm.Command | None:
        size = shm.COMMAND.size
        raw = bytes(self.view[shm.COMMAND.offset : shm.COMMAND.offset + size])
        return shm.read(raw, shm.COMMAND.offset, shm.COMMAND, 0)

    def remove(self) -> None:
        """The name is gone, and the folders above that it leaves empty."""
        self.path.unlink(missing_ok=True)
        folder = self.path.parent
        if folder.name == PENDING_FOLDER:
            _remove_if_empty(folder)
        elif _remove_if_empty(folder):
            remaining = os.listdir(folder.parent)
            if remaining == [GENERATION_FILE]:
                (folder.parent / GENERATION_FILE).unlink(missing_ok=True)
            _remove_if_empty(folder.parent)
        if _remove_if_empty(self.user_folder):
            _remove_if_empty(self.user_folder.parent)

    def close(self) -> None:
        """Mapping and descriptor are gone, and with them the lock. Later writes land in private memory:
        a hook that is still on its way must find something to write to."""
        if self._fd < 0:
            return
        private = memoryview(bytearray(shm.FILE_SIZE))
        old_view, old_words = self.view, self.words
        self.view, self.words = private, private.cast("Q")
        old_words.release()
        old_view.release()
        self._map.close()
        os.close(self._fd)
        self._fd = -1


def _new_file(root: Path) -> tuple[int, Path]:
    """Descriptor and path of this process's file below ``<root>/<uid>/.pending``, made with what is above.

    Raises PermissionError if the user's folder belongs to somebody else.
    """
    folder = root / str(os.getuid())
    path = folder / PENDING_FOLDER / f"{os.getpid()}-{start_ticks()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for attempt in range(RETRIES):
        try:
            _make_folders(root, folder)
            _check_owner(folder)
            path.unlink(missing_ok=True)
            return os.open(path, flags, 0o600), path
        except VANISHED:  # another rank has just removed a folder that it left empty
            if attempt == RETRIES - 1:
                raise
    raise AssertionError("unreachable")


def _check_owner(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a directory of user {os.getuid()}")


def _make_folders(root: Path, folder: Path) -> None:
    if not root.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        os.chmod(root, 0o1777)
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / PENDING_FOLDER).mkdir(mode=0o700, exist_ok=True)


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
