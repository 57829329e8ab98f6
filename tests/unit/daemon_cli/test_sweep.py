from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scoutd.daemon.cli import sweep
from scoutd.proto import shm

GONE = (1 << 22) + 1
"""A pid that cannot exist: the kernel's limit is 2^22."""


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def put(path: Path, run: str, pid: int = GONE, ticks: int = 1, rank: int = 0, size: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = bytearray(shm.FILE_SIZE)
    buffer[: shm.PREFIX.size] = shm.prefix()
    view = memoryview(buffer)
    header = shm.Header(
        pid=pid,
        start_ticks=ticks,
        attached_ns=0,
        generation=1,
        uid=os.getuid(),
        rank=rank,
        world_size=size,
        local_rank=0,
        local_world_size=1,
        job="j",
        run=run,
        launcher_id="",
        node="n",
        device="cpu",
        backend="gloo",
        python="3",
        torch="2",
    )
    shm.write(view, view.cast("Q"), shm.HEADER, 0, 1, header)
    path.write_bytes(buffer)
    return path


@pytest.fixture
def root(place: Path) -> Path:
    return sweep.user_root()


def test_files_of_the_run_go_with_their_folders(root: Path) -> None:
    ours = put(root / "job-a/1/rank-0", "ours")
    pending = put(root / ".pending/5-5", "ours")
    (root / "job-a/.generation").write_text("1")
    assert sweep.sweep("ours", set()) == 0
    assert not ours.exists()
    assert not pending.exists()
    assert not (root / "job-a").exists()


def test_a_job_spreads_where_ranks_of_it_are_not_ours(root: Path) -> None:
    assert not sweep.spreads("ours")
    put(root / "job-a/1/rank-0", "ours", rank=0, size=2)
    assert sweep.spreads("ours")
    put(root / "job-a/1/rank-1", "other", rank=1, size=2)
    assert sweep.spreads("ours")
    put(root / "job-a/1/rank-1", "ours", rank=1, size=2)
    assert not sweep.spreads("ours")


def test_other_runs_and_strange_files_stay(root: Path) -> None:
    other = put(root / "job-b/1/rank-0", "other")
    torn = root / "job-b/1/rank-1"
    torn.write_bytes(b"short")
    link = root / "job-b/1/rank-2"
    link.symlink_to(put(root / "elsewhere", "ours"))
    assert sweep.sweep("ours", set()) == 0
    assert other.exists()
    assert torn.exists()
    assert link.is_symlink()


def test_a_living_writer_keeps_its_file(root: Path) -> None:
    path = put(root / "job-a/1/rank-0", "ours", os.getpid(), start_ticks(os.getpid()))
    assert sweep.sweep("ours", set()) == 1
    assert path.exists()


def test_a_reused_pid_is_not_the_writer(root: Path) -> None:
    path = put(root / "job-a/1/rank-0", "ours", os.getpid(), start_ticks(os.getpid()) - 1)
    assert sweep.sweep("ours", set()) == 0
    assert not path.exists()


def test_a_lock_held_in_another_pid_namespace_keeps_its_file(root: Path) -> None:
    path = put(root / "job-a/1/rank-0", "ours")
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert sweep.sweep("ours", set()) == 1
        writer.communicate(b"\n")
    assert sweep.sweep("ours", set()) == 0
    assert not path.exists()


def test_a_remembered_job_goes_when_only_bookkeeping_is_left(root: Path) -> None:
    put(root / "job-a/1/rank-0", "ours")
    jobs = sweep.job_folders("ours")
    (root / "job-a/1/rank-0").unlink()
    (root / "job-a/.generation").write_text("1")
    sweep.sweep("ours", jobs)
    assert not (root / "job-a").exists()


def test_no_root_is_no_trouble(place: Path) -> None:
    assert sweep.sweep("ours", set()) == 0
