"""A clock that only tests move, a world of fake rank files, and real child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scoutd.daemon.observe.observer import Observer
from tests.unit.daemon_observe.writer import HEADER, Writer, start_ticks

S = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * S

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * S)


class World:
    """Rank files below a root of their own, and the observer that looks at them."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.clock = clock
        self.uid = os.getuid()
        self.writers: list[Writer] = []
        self.observers: list[Observer] = []

    def observer(self, run: str | None = None) -> Observer:
        observer = Observer(self.root, "n1", run, self.clock)
        self.observers.append(observer)
        return observer

    def job_path(self, job: str = HEADER.job) -> Path:
        return self.root / str(self.uid) / job

    def rank(self, rank: int, *, pid: int | None = None, locked: bool = False, **header: Any) -> Writer:
        pid = os.getpid() if pid is None else pid
        values = {
            "rank": rank,
            "local_rank": rank,
            "pid": pid,
            "start_ticks": start_ticks(pid),
            "uid": self.uid,
            "attached_ns": self.clock.now,
            **header,
        }
        record = HEADER._replace(**values)
        path = self.job_path(record.job) / str(record.generation) / f"rank-{rank}"
        writer = Writer(path, record, locked)
        self.writers.append(writer)
        return writer

    def close(self) -> None:
        for observer in self.observers:
            observer.close()
        for writer in self.writers:
            writer.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> Iterator[World]:
    found = World(tmp_path / "scoutd", clock)
    yield found
    found.close()


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python children that print a line once they run; they are killed at the end."""
    children: list[subprocess.Popen[str]] = []

    def start(code: str, *args: str, **options: Any) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", code, *args], stdout=subprocess.PIPE, text=True, **options
        )
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline()
        return child

    yield start
    for child in children:
        if child.returncode is None:
            os.kill(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
