"""A fake shim: writes rank files as the layout says, nothing more."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Any

from scoutd.proto import shm

HEADER = shm.Header(
    pid=1,
    start_ticks=1,
    attached_ns=0,
    generation=1,
    uid=0,
    rank=0,
    world_size=4,
    local_rank=0,
    local_world_size=4,
    job="train-ab12",
    run="r1",
    launcher_id="",
    node="n1",
    device="cpu",
    backend="gloo",
    python="3.11",
    torch="2.13.0",
)
COORDINATE = shm.Progress(100, 0, 1, 1, shm.Phase.FORWARD, 0, "layers.3 (Block)")
CALL = shm.Call(
    group=7,
    sequence=3,
    entered_ns=0,
    left_ns=0,
    fingerprint=99,
    numel=16,
    thread=100,
    state=shm.CallState.PENDING,
    waiting=1,
    kind=shm.CallKind.COLLECTIVE,
    peer=-1,
    tag=0,
    operation="all_reduce",
    dtype="float32",
    argument="SUM",
    shape="[4, 4]",
)
GROUP = shm.Group(7, 0, 4, 0, 0, 0, "0", "default_pg", "gloo", ((0, 1, 4),))


def start_ticks(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text[text.rfind(")") + 2 :].split()[19])


class Writer:
    """One rank's file, open and writable; its lock is taken where ``locked``."""

    def __init__(self, path: Path, header: shm.Header, locked: bool = False) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(self.fd, 0, shm.FILE_SIZE)
        self.map = mmap.mmap(self.fd, shm.FILE_SIZE)
        self.view = memoryview(self.map)
        self.words = self.view.cast("Q")
        self.view[: shm.PREFIX.size] = shm.prefix()
        self._sequences: dict[tuple[str, int], int] = {}
        if locked:
            fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.put(shm.HEADER, header)

    def put(self, section: shm.Section[Any], record: object, slot: int = 0) -> None:
        key = (section.name, slot)
        self._sequences[key] = self._sequences.get(key, 0) + 1
        shm.write(self.view, self.words, section, slot, self._sequences[key], record)

    def tear(self, section: shm.Section[Any], slot: int = 0) -> None:
        """Every copy of the slot carries a new sequence over an old payload."""
        for copy in range(section.copies):
            at = section.offset + (slot * section.copies + copy) * section.copy_bytes
            self.words[at >> 3] = 1000 + copy

    def command(self) -> shm.Command | None:
        return shm.read(bytes(self.view), 0, shm.COMMAND, 0)

    def close(self) -> None:
        self.words.release()
        self.view.release()
        self.map.close()
        os.close(self.fd)
