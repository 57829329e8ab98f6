"""What is removed, and what must stay."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from scoutd.daemon.observe import cleaning, tree
from scoutd.daemon.observe.tree import Place
from tests.unit.daemon_observe.conftest import World
from tests.unit.daemon_observe.writer import start_ticks

Spawn = Callable[..., "subprocess.Popen[str]"]
HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX)
print('up', flush=True)
sys.stdin.read()
"""


def hold(spawn: Spawn, path: Path) -> subprocess.Popen[str]:
    """A process that lives and holds the lock of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return spawn(HOLD, str(path), stdin=subprocess.PIPE)


def end(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    child.wait()


def test_a_finished_run_leaves_nothing(world: World) -> None:
    world.rank(0)
    world.rank(1)
    observer = world.observer()
    observer.observe()
    observer.forget("train-ab12", 1)
    assert not world.root.exists()
    world.clock.advance(1)
    assert observer.observe() == []


def test_bad_files_go_with_their_generation(world: World, tmp_path: Path) -> None:
    place = world.rank(0).path.parent
    (tmp_path / "precious").touch()
    (place / "rank-1").symlink_to(tmp_path / "precious")
    (place / "rank-2").touch()
    os.mkfifo(place / "rank-3")
    observer = world.observer()
    observer.observe()
    observer.forget("train-ab12", 1)
    assert not world.root.exists()
    assert (tmp_path / "precious").exists()


def test_a_live_rank_keeps_its_file(world: World, spawn: Spawn) -> None:
    world.rank(0)
    live = world.rank(1)
    hold(spawn, live.path)
    observer = world.observer()
    observer.observe()
    observer.forget("train-ab12", 1)
    assert os.listdir(live.path.parent) == ["rank-1"]


def test_a_forgotten_generation_leaves_its_number(world: World) -> None:
    world.rank(0, generation=1)
    world.rank(0, generation=2)
    cleaning.remove_generation(Place(world.root, world.uid, "train-ab12", 2))
    assert not (world.job_path() / "2").exists()
    assert (world.job_path() / ".generation").read_text() == "2\n"
    cleaning.remove_generation(Place(world.root, world.uid, "train-ab12", 1))
    assert not world.root.exists()


def test_the_number_never_falls(world: World) -> None:
    for generation in (1, 2, 3):
        world.rank(0, generation=generation)
    for generation in (2, 1):
        cleaning.remove_generation(Place(world.root, world.uid, "train-ab12", generation))
    assert (world.job_path() / ".generation").read_text() == "2\n"


def test_a_superseded_generation_goes_with_its_last_rank(world: World, spawn: Spawn) -> None:
    old = world.rank(0, generation=1)
    world.rank(0, generation=2)
    child = hold(spawn, old.path)
    observer = world.observer()
    observer.observe()
    assert old.path.exists()
    assert observer.warnings == (
        f"{world.uid}/train-ab12/1: superseded by a newer generation, but still has a live rank",
    )
    end(child)
    world.clock.advance(6)
    observer.observe()
    assert not old.path.parent.exists()
    assert not observer.warnings


def test_the_observer_of_one_run_leaves_other_runs_alone(world: World) -> None:
    old = world.rank(0, generation=1, run="r2")
    world.rank(0, generation=2, run="r2")
    world.observer("r1").observe()
    assert old.path.exists()
    world.observer("r2").observe()
    assert not old.path.exists()


def test_files_without_identity_go_with_their_process(world: World, spawn: Spawn) -> None:
    pending = world.root / str(world.uid) / ".pending"
    live = pending / f"{os.getpid()}-{start_ticks(os.getpid())}"
    dead = pending / f"{os.getpid()}-1"
    strange = pending / "notes.txt"
    pending.mkdir(parents=True)
    for path in (live, dead, strange):
        path.touch()
    world.observer().observe()
    assert sorted(os.listdir(pending)) == sorted([live.name, strange.name])


def test_a_link_never_leads_out_of_the_tree(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "1"
    outside.mkdir(parents=True)
    (outside / "rank-0").touch()
    world.rank(0)
    world.job_path("evil").symlink_to(outside.parent)
    assert not cleaning.remove_generation(Place(world.root, world.uid, "evil", 1))
    assert (outside / "rank-0").exists()
    assert [place.job for place in tree.scan(world.root, world.uid).ranks] == ["train-ab12"]


def test_an_ordinary_user_sees_only_itself(world: World) -> None:
    world.rank(0)
    assert tree.scan(world.root, world.uid + 1).ranks == {}
