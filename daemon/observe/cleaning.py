"""Removes what finished generations leave behind, and nothing that lives.

A rank's file is removed only while its lock is free. Directories go when they are empty; while only a
generation of a job goes, ``<job>/.generation`` keeps its number, so that a restarted launcher does not
count from the beginning again. Everything happens relative to open directories, never through a link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from scoutd.daemon.observe.locks import lock_holder
from scoutd.daemon.observe.procstat import same_process
from scoutd.daemon.observe.tree import GENERATION, PENDING, RANK_PREFIX, Place, Tree, opened


def remove_generation(place: Place, ranks: set[int] | None = None) -> bool:
    """The files of dead ranks of one generation are gone, and the directories that this emptied.

    ``ranks``: of these only; None: of all. True if the whole generation is gone. Failures leave files
    behind and are not errors.
    """
    try:
        with opened(place.root, *place.parts, uid=place.uid) as fd:
            for name in os.listdir(fd):
                if not name.startswith(RANK_PREFIX) or not _among(name, ranks):
                    continue
                if not is_locked(name, fd):
                    with suppress(OSError):
                        os.unlink(name, dir_fd=fd)
        _remove_directories(place)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _among(name: str, ranks: set[int] | None) -> bool:
    number = name[len(RANK_PREFIX) :]
    return ranks is None or (number.isdecimal() and int(number) in ranks)


def has_live_rank(place: Place) -> bool:
    """Some file of the generation is locked by its writer."""
    try:
        with opened(place.root, *place.parts, uid=place.uid) as fd:
            return any(is_locked(name, fd) for name in os.listdir(fd) if name.startswith(RANK_PREFIX))
    except OSError:
        return False


def is_locked(name: str, dir_fd: int) -> bool:
    """A writer holds the file's lock; a file that cannot be asked counts as locked, a link never does."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    try:
        return lock_holder(fd) is not None
    except OSError:
        return True
    finally:
        os.close(fd)


def remove_superseded(tree: Tree, ours: Callable[[Place], bool]) -> list[str]:
    """Generations with a newer one and no live rank are gone; those that live are returned as warnings."""
    newest = tree.newest()
    warnings = []
    for place in list(tree.ranks):
        if place == newest[(place.uid, place.job)] or not ours(place):
            continue
        if has_live_rank(place):
            warnings.append(f"{place}: superseded by a newer generation, but still has a live rank")
        else:
            remove_generation(place)
    return warnings


def remove_stale_pending(root: Path, pending: Iterable[tuple[int, int, int]]) -> None:
    """Files (uid, pid, start ticks) of processes that died before they knew who they are."""
    for uid, pid, ticks in pending:
        if same_process(pid, ticks):
            continue
        with suppress(OSError), opened(root, str(uid), PENDING, uid=uid) as fd:
            if not is_locked(f"{pid}-{ticks}", fd):
                os.unlink(f"{pid}-{ticks}", dir_fd=fd)


def _remove_directories(place: Place) -> None:
    """The empty generation goes; the job goes with its last generation, else its number is kept."""
    with opened(place.root, str(place.uid), place.job, uid=place.uid) as job_fd:
        os.rmdir(str(place.generation), dir_fd=job_fd)
        others = [name for name in os.listdir(job_fd) if name != GENERATION]
        if others:
            _remember_generation(job_fd, place.generation)
            return
        with suppress(FileNotFoundError):
            os.unlink(GENERATION, dir_fd=job_fd)
    with opened(place.root, str(place.uid), uid=place.uid) as user_fd:
        os.rmdir(place.job, dir_fd=user_fd)
        with suppress(OSError):
            os.rmdir(PENDING, dir_fd=user_fd)
        remaining = os.listdir(user_fd)
    if not remaining:
        with suppress(OSError), opened(place.root) as root_fd:
            os.rmdir(str(place.uid), dir_fd=root_fd)
    with suppress(OSError):
        os.rmdir(place.root)


def _remember_generation(job_fd: int, generation: int) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(GENERATION, flags, 0o600, dir_fd=job_fd)
    try:
        text = os.read(fd, 32).decode("ascii", "replace").strip()
        if not text.isdecimal() or int(text) < generation:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{generation}\n".encode(), 0)
    finally:
        os.close(fd)
