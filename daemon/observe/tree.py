"""The directory tree of shared memory: which jobs, generations and ranks have a file.

``<root>/<uid>/<job>/<generation>/rank-<r>``. The root is world-writable, so a directory is believed only if
it belongs to the user that its name says; every step below is taken relative to an open directory and
never through a symbolic link, so that nobody can lead an agent that runs as root out of the tree. An agent
of an ordinary user sees its own uid, root sees every one. A directory that vanishes in between is empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PENDING: Final = ".pending"
GENERATION: Final = ".generation"
RANK_PREFIX: Final = "rank-"
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Place:
    """Where one generation of one job has its files. ``uid`` owns all of them."""

    root: Path
    uid: int
    job: str
    generation: int

    @property
    def parts(self) -> tuple[str, ...]:
        return (str(self.uid), self.job, str(self.generation))

    def __str__(self) -> str:
        return "/".join(self.parts)


@dataclass
class Tree:
    """One look at the tree. ``ranks``: file name's rank → inode, per generation. ``warnings`` name the
    directories that were refused. ``pending``: (uid, pid, start ticks) of processes without
    identity yet."""

    ranks: dict[Place, dict[int, int]] = field(default_factory=dict)
    pending: set[tuple[int, int, int]] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    def newest(self) -> dict[tuple[int, str], Place]:
        """Per (uid, job) its highest generation that has a file."""
        found: dict[tuple[int, str], Place] = {}
        for place in self.ranks:
            key = (place.uid, place.job)
            if key not in found or place.generation > found[key].generation:
                found[key] = place
        return found


@contextmanager
def opened(root: Path, *parts: str, uid: int | None = None) -> Iterator[int]:
    """An open directory below the root, reached without following a link.

    Raises OSError if a part is missing, is a link, or does not belong to ``uid`` (where given).
    """
    fd = os.open(root, DIRECTORY)
    try:
        for part in parts:
            below = os.open(part, DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
            if uid is not None and os.fstat(fd).st_uid != uid:
                raise PermissionError(f"{part} belongs to uid {os.fstat(fd).st_uid}")
        yield fd
    finally:
        os.close(fd)


def scan(root: Path, own_uid: int) -> Tree:
    """The tree as it is now; missing directories are empty, refused ones become warnings."""
    tree = Tree()
    for name in _names(root):
        if name.isdecimal() and own_uid in (0, int(name)):
            try:
                _scan_user(tree, root, int(name))
            except FileNotFoundError:
                continue
            except OSError as error:
                tree.warnings.append(f"{name}: refused, {error.strerror or error}")
    return tree


def _names(root: Path) -> list[str]:
    try:
        return os.listdir(root)
    except OSError:
        return []


def _scan_user(tree: Tree, root: Path, uid: int) -> None:
    with opened(root, str(uid), uid=uid) as fd:
        for job in os.listdir(fd):
            if job == PENDING:
                tree.pending |= {(uid, *process) for process in _pending(fd)}
            elif not job.startswith("."):
                _scan_job(tree, root, uid, job, fd)


def _scan_job(tree: Tree, root: Path, uid: int, job: str, user_fd: int) -> None:
    try:
        job_fd = os.open(job, DIRECTORY, dir_fd=user_fd)
    except OSError as error:
        tree.warnings.append(f"{uid}/{job}: refused, {error.strerror}")
        return
    try:
        for name in os.listdir(job_fd):
            if name.isdecimal():
                place = Place(root, uid, job, int(name))
                ranks = _ranks(job_fd, name)
                if ranks:
                    tree.ranks[place] = ranks
    finally:
        os.close(job_fd)


def _ranks(job_fd: int, generation: str) -> dict[int, int]:
    try:
        fd = os.open(generation, DIRECTORY, dir_fd=job_fd)
    except OSError:
        return {}
    try:
        with os.scandir(fd) as entries:
            return {
                int(entry.name[len(RANK_PREFIX) :]): entry.inode()
                for entry in entries
                if entry.name.startswith(RANK_PREFIX) and entry.name[len(RANK_PREFIX) :].isdecimal()
            }
    finally:
        os.close(fd)


def _pending(user_fd: int) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    try:
        fd = os.open(PENDING, DIRECTORY, dir_fd=user_fd)
    except OSError:
        return found
    try:
        for name in os.listdir(fd):
            pid, _, ticks = name.partition("-")
            if pid.isdecimal() and ticks.isdecimal():
                found.add((int(pid), int(ticks)))
    finally:
        os.close(fd)
    return found
