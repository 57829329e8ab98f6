"""One process as /proc shows it: state, times, exit status. Values, no policy.

Every look-up says None where the process is gone or may not be looked at; a pid is believed only together
with its start time, because the kernel reuses pids.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from typing import Final

CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")

# struct pidfd_info up to its exit code: mask, cgroup id, eleven ids, exit code; 6.15 and newer answer with
# the exit code of a process that is already reaped. ioctl number _IOWR(0xFF, 11, struct pidfd_info).
_PIDFD_INFO: Final = struct.Struct("<QQ11Ii8x")
_PIDFD_INFO_EXIT: Final = 1 << 3
_PIDFD_GET_INFO: Final = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11


@dataclass(frozen=True)
class ProcStat:
    """``state`` is the kernel's letter; ``cpu_ticks`` the process's own user and system time,
    ``reaped_ticks`` that of its waited-for children; ``exit_status`` has the encoding of wait(2) and means
    something in state Z only."""

    state: str
    parent: int
    start_ticks: int
    cpu_ticks: int
    reaped_ticks: int
    exit_status: int


def read_stat(path: str) -> ProcStat | None:
    """/proc/PID/stat or /proc/PID/task/TID/stat, None if there is no such process."""
    text = read_text(path)
    if text is None:
        return None
    # The command in parentheses may hold anything, parentheses and blanks too; the rest is numbers.
    fields = text[text.rfind(")") + 2 :].split()
    if len(fields) < 50:
        return None
    number = [int(fields[k]) for k in (1, 11, 12, 13, 14, 19, 49)]
    parent, user, system, children_user, children_system, start, exit_status = number
    return ProcStat(
        fields[0], parent, start, user + system, children_user + children_system, exit_status & 0xFFFF
    )


def process_stat(pid: int) -> ProcStat | None:
    return read_stat(f"/proc/{pid}/stat")


def same_process(pid: int, start_ticks: int) -> bool:
    """The pid still means the process that started then, as a zombie too."""
    found = process_stat(pid)
    return found is not None and found.start_ticks == start_ticks


def read_text(path: str, limit: int = 1 << 18) -> str | None:
    """The first ``limit`` bytes of a file of /proc or /sys; None where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, limit).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(fd)


def exit_status_of(pidfd: int, pid: int, start_ticks: int) -> int | None:
    """The wait(2) status of a process whose pidfd is readable: from its zombie, or, once its parent has
    reaped it, from the pidfd where the kernel keeps it. None: neither."""
    zombie = process_stat(pid)
    if zombie is not None and zombie.start_ticks == start_ticks and zombie.state in "ZX":
        return zombie.exit_status
    asked = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0, *[0] * 11, 0))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, asked)
    except OSError:
        return None
    answer = _PIDFD_INFO.unpack(asked)
    return int(answer[-1]) & 0xFFFF if answer[0] & _PIDFD_INFO_EXIT else None


def decode_exit(status: int | None) -> tuple[int | None, int | None]:
    """(exit code, signal) of a wait(2) status; a killed process has no exit code."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def list_names(path: str) -> list[str]:
    """The entries of a directory, none where it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []
