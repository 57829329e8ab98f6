"""The last resort for shared memory: files of this run that its agent has not removed.

Removing them is the agent's work; where it was killed or never started, this does it. A file is ours if its
header carries the run's tag, and it is removed only if its writer is gone: nobody holds the file's lock and
no process has the header's pid with its start time (the lock alone would miss a shim that could not lock,
the pid alone a trainer in another PID namespace).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from scoutd.proto import shm


def user_root() -> Path:
    """The folder of this user's shared-memory files."""
    return Path(os.environ.get("SCOUTD_ROOT") or shm.ROOT) / str(os.getuid())


def files(tag: str) -> list[Path]:
    """The shared-memory files whose header names this run."""
    root = user_root()
    candidates = [*root.glob(".pending/*"), *root.glob("*/*/rank-*")]
    return [path for path in candidates if (header := _header(path)) is not None and header.run == tag]


def sweep(tag: str, jobs: set[Path]) -> int:
    """Files of the run's dead processes are removed, and what is left empty of the given job folders.

    Returns:
        How many files of living processes stay.
    """
    kept = 0
    for path in files(tag):
        if path.parent.name != ".pending":
            jobs.add(path.parent.parent)
        if _is_written(path):
            kept += 1
        else:
            _remove(path)
    for job in jobs:
        _remove_if_bare(job)
    return kept


def job_folders(tag: str) -> set[Path]:
    """Folders of the run's jobs, to be remembered before their files go."""
    return {path.parent.parent for path in files(tag) if path.parent.name != ".pending"}


def spreads(tag: str) -> bool:
    """Some job of the run has ranks that are not of this run: on other hosts, under runs of their own."""
    found: dict[tuple[str, int, int], set[int]] = {}
    for header in filter(None, map(_header, files(tag))):
        found.setdefault((header.job, header.generation, header.world_size), set()).add(header.rank)
    return any(len(ranks) < size for (_, _, size), ranks in found.items())


def _header(path: Path) -> shm.Header | None:
    """None for a file that is unreadable, foreign, or of another layout."""
    base = shm.HEADER.offset
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        shm.check_prefix(os.pread(fd, shm.PREFIX.size, 0))
        return shm.read(os.pread(fd, shm.HEADER.size, base), base, shm.HEADER, 0)
    except (OSError, shm.LayoutError):
        return None
    finally:
        os.close(fd)


def _is_written(path: Path) -> bool:
    """True if the file's writer may be alive."""
    header = _header(path)
    return _is_locked(path) or (header is not None and _lives(header.pid, header.start_ticks))


def _is_locked(path: Path) -> bool:
    """A shared lock is refused while the shim holds its exclusive one."""
    try:
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lives(pid: int, start_ticks: int) -> bool:
    """The process that started then exists and is no zombie. Field 22 of ``stat`` is the start time; the
    name in field 2 may hold blanks and parentheses, so fields are counted from its end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and int(fields[19]) == start_ticks


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
        if path.parent.name != ".pending":
            path.parent.rmdir()


def _remove_if_bare(job: Path) -> None:
    """A job's folder goes when only bookkeeping (names with a leading dot) is left in it."""
    with contextlib.suppress(OSError):
        for generation in job.iterdir():
            if generation.is_dir():
                generation.rmdir()
        left = list(job.iterdir())
        if all(path.name.startswith(".") for path in left):
            for path in left:
                path.unlink()
            job.rmdir()
