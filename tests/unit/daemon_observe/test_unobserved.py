"""Ranks without a shim: found by their environment, told from workers by their parents."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from itertools import pairwise

import pytest

from scoutd.agent.evidence import ProcessStatus
from scoutd.daemon.observe import unobserved
from scoutd.daemon.observe.unobserved import Candidate, candidates, select
from tests.unit.daemon_observe.conftest import S, World

Spawn = Callable[..., "subprocess.Popen[str]"]
WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
PARENT = """
import os, sys
if os.fork() == 0:
    print('up', flush=True)
sys.stdin.read()
"""


def environment(rank: int, run: str) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "4",
        "SCOUTD_RUN": run,
    }


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unobserved, "MIN_AGE_S", 0.0)


def candidate(pid: int, parent: int = 1, rank: int = 0, age_s: float = 60.0) -> Candidate:
    return Candidate(pid, parent, 5, rank, 4, rank, "r1", age_s)


def count_scans(world: World, monkeypatch: pytest.MonkeyPatch, *found: Candidate) -> list[int]:
    """Every scan of /proc finds these; the list grows by its time."""
    scans: list[int] = []

    def find(run: str | None, uid: int) -> list[Candidate]:
        scans.append(world.clock.now)
        return list(found)

    monkeypatch.setattr(unobserved, "candidates", find)
    return scans


def test_a_worker_of_the_same_rank_is_not_a_rank() -> None:
    trainer, worker = candidate(10), candidate(11, parent=10)
    assert select([trainer, worker], set()) == [trainer]


def test_a_rank_below_another_rank_is_one() -> None:
    """A launcher that was itself started as a rank: the children carry other ranks."""
    outer, inner = candidate(10), candidate(11, parent=10, rank=1)
    assert select([outer, inner], set()) == [outer, inner]


def test_a_young_process_may_still_attach_and_an_attached_one_has() -> None:
    assert select([candidate(10, age_s=3.0), candidate(11, rank=1)], {(11, 5)}) == []


@pytest.mark.usefixtures("no_wait")
def test_a_rank_without_a_shim_is_reported_and_its_death_too(world: World, spawn: Spawn) -> None:
    run = f"t{os.getpid()}"
    world.rank(0, run=run)
    child = spawn(WAIT, stdin=subprocess.PIPE, env=environment(1, run))
    observer = world.observer(run)
    observer.observe()
    (observation,) = observer.observe()
    (found,) = observer.unobserved
    assert (found.rank, found.pid) == (1, child.pid)
    assert "no shim" in found.reason
    seen, unseen = observation.report.ranks
    assert (seen.rank, seen.observed) == (0, True)
    assert (unseen.rank, unseen.pid, unseen.observed) == (1, child.pid, False)
    assert unseen.process.status is ProcessStatus.RUNNING
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    (observation,) = observer.observe()
    assert observation.report.ranks[1].process.status is ProcessStatus.GONE


@pytest.mark.usefixtures("no_wait")
def test_without_a_run_tag_only_a_common_parent_makes_a_job(world: World, spawn: Spawn) -> None:
    """Two jobs of the same size on one node: a rank of the one is no missing rank of the other."""
    child = spawn(WAIT, stdin=subprocess.PIPE, env=environment(1, ""))
    world.rank(0, run="", pid=os.getppid())
    observer = world.observer()
    (observation,) = observer.observe()
    assert [rank.rank for rank in observation.report.ranks] == [0]
    assert child.pid in {found.pid for found in observer.unobserved}
    beside = spawn(WAIT, stdin=subprocess.PIPE)
    world.rank(0, run="", job="mine-ef56", pid=beside.pid)
    world.clock.advance(6)
    reports = {o.job: o.report for o in observer.observe()}
    assert [rank.rank for rank in reports["mine-ef56"].ranks] == [0, 1]


@pytest.mark.usefixtures("no_wait")
def test_a_late_shim_makes_an_ordinary_rank(world: World, spawn: Spawn) -> None:
    run = f"t{os.getpid()}"
    child = spawn(WAIT, stdin=subprocess.PIPE, env=environment(1, run))
    observer = world.observer(run)
    assert observer.observe() == []
    assert [found.pid for found in observer.unobserved] == [child.pid]
    world.rank(1, run=run, pid=child.pid)
    world.clock.advance(1)
    (observation,) = observer.observe()
    assert [rank.observed for rank in observation.report.ranks] == [True]
    assert observer.unobserved == ()


@pytest.mark.usefixtures("no_wait")
def test_a_complete_job_costs_no_scan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.rank(0, world_size=1, local_world_size=1)
    scans = count_scans(world, monkeypatch)
    observer = world.observer()
    observer.observe()
    scans.clear()
    for _ in range(20):
        world.clock.advance(5)
        observer.observe()
    assert scans == []


@pytest.mark.usefixtures("no_wait")
def test_fruitless_scans_become_rare(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = count_scans(world, monkeypatch)
    observer = world.observer()
    for _ in range(200):
        observer.observe()
        world.clock.advance(1)
    gaps = [(b - a) / 1e9 for a, b in pairwise(scans)]
    assert gaps[:3] == [5, 10, 20]
    assert max(gaps) == gaps[-1] == 30


def test_a_young_rank_keeps_the_scans_close(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = count_scans(world, monkeypatch, candidate(10, age_s=2.0))
    observer = world.observer()
    for _ in range(60):
        observer.observe()
        world.clock.advance(1)
    assert {b - a for a, b in pairwise(scans)} == {5 * S}


def test_only_the_runs_own_processes_are_candidates(spawn: Spawn) -> None:
    run = f"t{os.getpid()}"
    child = spawn(PARENT, stdin=subprocess.PIPE, env=environment(2, run))
    spawn(WAIT, stdin=subprocess.PIPE, env=environment(3, run + "other"))
    found = candidates(run, os.getuid())
    assert {c.rank for c in found} == {2}
    assert [c.pid for c in found if c.parent not in {x.pid for x in found}] == [child.pid]
