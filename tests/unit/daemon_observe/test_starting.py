"""Ranks that wait in ``init_process_group`` for one that has not called it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scoutd.agent.evidence import Frame, Phase, ProcessStatus, RankReport, Stack
from scoutd.agent.silence import NOT_STARTED
from scoutd.daemon.observe import starting
from scoutd.daemon.observe.activity import Sample
from scoutd.daemon.observe.observer import JobObservation, Observer
from scoutd.daemon.observe.share import Share
from scoutd.daemon.observe.stacks import StackCapture, Traced
from scoutd.daemon.observe.unobserved import Candidate
from tests.unit.daemon_observe.conftest import World
from tests.unit.daemon_observe.writer import HEADER, Writer, start_ticks

Spawn = Callable[..., "subprocess.Popen[str]"]
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def waits(world: World, rank: int, pid: int, size: int = 3, **header: object) -> Writer:
    """A rank inside the call: its file has no backend yet."""
    record = HEADER._replace(
        pid=pid,
        start_ticks=start_ticks(pid),
        uid=world.uid,
        rank=rank,
        world_size=size,
        job="",
        generation=0,
        backend="",
        attached_ns=world.clock.now,
    )._replace(**header)
    path = world.root / str(world.uid) / ".pending" / f"{pid}-{start_ticks(pid)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = Writer(path, record)
    world.writers.append(writer)
    return writer


def seen(world: World, observer: Observer, seconds: float) -> list[JobObservation]:
    found: list[JobObservation] = []
    for _ in range(int(seconds * 4)):
        world.clock.advance(0.25)
        found = observer.observe()
    return found


def late_is(monkeypatch: pytest.MonkeyPatch, pid: int, rank: int, size: int = 3) -> None:
    parent = os.getpid()
    known = Candidate(pid, parent, start_ticks(pid), rank, size, rank, "r1", 60.0)
    monkeypatch.setattr(starting, "candidates", lambda *_: [known])


def by_rank(observation: JobObservation) -> dict[int, RankReport]:
    return {each.rank: each for each in observation.report.ranks}


def test_who_waits_and_who_is_late(world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, late = (spawn(SLEEP) for _ in range(3))
    waits(world, 0, first.pid)
    waits(world, 1, second.pid)
    late_is(monkeypatch, late.pid, 2)
    (observation,) = seen(world, world.observer(), 4.0)
    ranks = by_rank(observation)
    assert observation.starting
    assert (observation.job, observation.run, observation.report.world_size) == ("starting-r1", "r1", 3)
    assert [ranks[r].calls[0].waiting for r in (0, 1)] == [True, True]
    at = ranks[2].coordinate
    assert at is not None
    assert (at.phase, at.operation, at.waiting) == (Phase.INIT, NOT_STARTED, False)
    assert (ranks[2].pid, ranks[2].process.status) == (late.pid, ProcessStatus.RUNNING)
    assert ranks[2].activity is not None


def test_a_short_wait_is_not_told(world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    first, late = spawn(SLEEP), spawn(SLEEP)
    waits(world, 0, first.pid)
    late_is(monkeypatch, late.pid, 2)
    assert seen(world, world.observer(), 1.5) == []


def test_without_a_process_that_is_late_nothing_is_said(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "candidates", lambda *_: [])
    waits(world, 0, spawn(SLEEP).pid)
    assert seen(world, world.observer(), 10.0) == []


@contextmanager
def launcher(*programs: str) -> Iterator[list[int]]:
    """Children of one process that run these programs: their pids."""
    code = (
        "import subprocess, sys\n"
        "pids = [subprocess.Popen([sys.executable, '-S', '-c', code], stdout=subprocess.DEVNULL).pid"
        f" for code in {programs!r}]\n"
        "print(*pids, flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    try:
        yield pids
    finally:
        for pid in (*pids, process.pid):
            os.kill(pid, 9)
        process.communicate()


def test_the_only_other_child_of_the_launcher_is_the_one(world: World) -> None:
    with launcher(SLEEP + " # 1", SLEEP + " # 22", SLEEP + " # 3") as pids:
        waits(world, 0, pids[0])
        waits(world, 1, pids[2])
        (observation,) = seen(world, world.observer(), 4.0)
        assert by_rank(observation)[2].pid == pids[1]


def test_a_child_that_another_agent_observes_is_not_ours(world: World) -> None:
    with launcher(SLEEP, SLEEP) as pids:
        waits(world, 0, pids[0], size=2)
        observer = Observer(world.root, "n1", None, world.clock, share=Share(0, 2))
        world.observers.append(observer)
        assert seen(world, observer, 4.0) == []


def test_a_child_of_the_launcher_that_runs_something_else_is_no_rank(world: World) -> None:
    """The missing rank may be on another node."""
    with launcher(SLEEP, "import time; time.sleep(600)", SLEEP) as pids:
        waits(world, 0, pids[0])
        waits(world, 1, pids[2])
        assert seen(world, world.observer(), 4.0) == []


def test_a_size_that_makes_no_sense_is_not_believed(world: World, spawn: Spawn) -> None:
    waits(world, 0, spawn(SLEEP).pid, size=(1 << 32) - 1)
    assert seen(world, world.observer(), 4.0) == []


def test_who_started_later_than_the_others_is_not_silent_for_longer(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = spawn(SLEEP), spawn(SLEEP)
    waits(world, 0, first.pid)
    known = Candidate(late.pid, os.getpid(), start_ticks(late.pid), 2, 3, 2, "r1", 0.5)
    monkeypatch.setattr(starting, "candidates", lambda *_: [])
    observer = world.observer()
    seen(world, observer, 40.0)
    monkeypatch.setattr(starting, "candidates", lambda *_: [known])
    assert 0 < by_rank(seen(world, observer, 17.0)[0])[2].silent_ns < 20_000_000_000


def test_what_moved_a_while_ago_has_not_stopped_for_good(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu_ns = 0

    def sample(pid: int, threads: frozenset[int], now_ns: int) -> Sample:
        return Sample(now_ns, cpu_ns, 0)

    monkeypatch.setattr(starting, "take_sample", sample)
    first, late = spawn(SLEEP), spawn(SLEEP)
    waits(world, 0, first.pid)
    late_is(monkeypatch, late.pid, 2)
    observer = world.observer()
    for _ in range(40):
        cpu_ns += 100_000_000
        found = seen(world, observer, 0.25)
    for seconds, busy in ((15.0, True), (12.0, False)):
        found = seen(world, observer, seconds)
        activity = by_rank(found[0])[2].activity
        assert activity is not None
        assert (activity.cpu_ratio > 0.1) is busy


def test_a_process_without_a_shim_that_is_inside_the_call_is_not_late(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = spawn(SLEEP), spawn(SLEEP)
    waits(world, 0, first.pid)
    late_is(monkeypatch, late.pid, 2)

    async def capture(_: StackCapture, traced: Traced, native: bool) -> None:
        frames = (Frame("wait", "c10d.py", 1), Frame("init_process_group", "c10d.py", 2))
        traced.stack = (Stack(frames, 0, native, True), world.clock.now)

    monkeypatch.setattr(StackCapture, "capture", capture)
    observer = world.observer()
    assert 2 in by_rank(seen(world, observer, 4.0)[0])
    asyncio.run(observer.capture_stack("starting-r1", 2, False))
    assert [rank.silent_ns for rank in seen(world, observer, 0.25)[0].report.ranks] == [0]
    assert seen(world, observer, 20.0) == []


def test_who_comes_has_moved_and_the_start_ends(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = spawn(SLEEP), spawn(SLEEP)
    files = [waits(world, 0, first.pid, size=2)]
    late_is(monkeypatch, late.pid, 1, size=2)
    observer = world.observer()
    assert 1 in by_rank(seen(world, observer, 4.0)[0])
    files.append(waits(world, 1, late.pid, size=2))
    (last,) = (each for _ in range(4) for each in seen(world, observer, 0.25))
    assert [(r.rank, r.silent_ns) for r in last.report.ranks] == [(1, 0)]
    for file in files:
        Path(file.path).unlink()
    assert seen(world, observer, 1.0) == []


def test_a_start_whose_ranks_died_is_over_and_nobody_has_moved(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = spawn(SLEEP), spawn(SLEEP)
    waits(world, 0, first.pid, size=2)
    late_is(monkeypatch, late.pid, 1, size=2)
    observer = world.observer()
    assert 1 in by_rank(seen(world, observer, 4.0)[0])
    first.kill()
    first.wait()
    assert all(not each.report.ranks for each in seen(world, observer, 1.0))


def test_a_rank_that_has_a_backend_does_not_wait(
    world: World, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, late = spawn(SLEEP), spawn(SLEEP)
    waits(world, 0, first.pid, backend="gloo")
    late_is(monkeypatch, late.pid, 2)
    assert seen(world, world.observer(), 4.0) == []
