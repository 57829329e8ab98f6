"""The lock that a shim holds on its file for life, asked from outside.

A POSIX record lock dies with its process, is not inherited by fork and is seen across PID namespaces. A
free lock alone proves no death (a library may have closed the file in the trainer), a held one proves life.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("hhqqi4x")


def lock_holder(fd: int) -> int | None:
    """The pid that holds a write lock on the file, None if it is free.

    0 or less: the holder lives in a PID namespace that this process cannot see.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else int(pid)
