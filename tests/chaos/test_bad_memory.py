"""Shared memory that is full, foreign or broken: the job is unharmed, the agent says what it met."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scoutd.proto import shm
from tests.e2e import expect
from tests.e2e.harness import Site, forked, until


def litter(generation: Path) -> set[str]:
    """Puts every kind of bad file among the ranks of a job and returns their names."""
    whole = shm.prefix() + bytes(shm.FILE_SIZE - shm.PREFIX.size)
    newer = shm.PREFIX.pack(shm.MAGIC, shm.LAYOUT_VERSION + 1, shm.PREFIX.size, shm.FILE_SIZE)
    contents = {
        "rank-90": b"",
        "rank-91": whole[:1000],
        "rank-92": os.urandom(shm.FILE_SIZE),
        "rank-93": newer + whole[len(newer) :],
    }
    for name, content in contents.items():
        (generation / name).write_bytes(content)
    (generation / "rank-94").symlink_to("/etc/passwd")
    (generation / "rank-95").mkdir()
    os.mkfifo(generation / "rank-96")
    if os.geteuid() == 0:
        (generation / "rank-97").write_bytes(whole)
        os.chown(generation / "rank-97", 12345, 12345)
    return {entry.name for entry in generation.glob("rank-9?")}


def test_bad_files_are_warnings_and_never_evidence(site: Site) -> None:
    go = site.folder / "go"
    fault = ["--fault", "sleep-forward", "--rank", "2", "--when", str(go), "--steps", "100000"]
    running = site.watch(forked("--progress", str(site.progress), *fault))
    until(lambda: site.steps() > 3, "four steps")
    (first,) = site.root.glob("*/*/*/rank-0")
    bad = litter(first.parent)

    def warned() -> set[str]:
        text = "\n".join((site.ask("status") or {}).get("warnings", []))
        return {name for name in bad if name in text}

    until(lambda: warned() == bad, "a warning about every bad file", 30.0)
    ranks = [int(r.get("rank", 0)) for job in site.ask("status")["jobs"] for r in job["ranks"]]
    assert ranks == [0, 1, 2, 3]
    go.touch()
    outcome = running.finish()
    expect.blames(outcome, "RANK_STALLED", [2], phase="FORWARD")
    expect.waits(outcome, 2)
    expect.stopped(outcome)


@pytest.fixture
def tiny(site: Site) -> Iterator[Path]:
    """The site's root on a file system of its own that has no room for a rank's file."""
    options = ["-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", str(site.root)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root and the right to mount")
    yield site.root
    subprocess.run(["umount", "-l", str(site.root)], check=True)


@pytest.mark.usefixtures("tiny")
def test_full_shared_memory_leaves_the_job_alone(site: Site) -> None:
    running = site.watch(forked("--progress", str(site.progress), "--steps", "150"))
    outcome = running.finish()
    expect.no_fault(outcome)
    assert site.steps() == 150
    assert outcome.verdicts == []
    assert "Traceback" not in outcome.err, str(outcome)
    assert not site.processes()


def test_a_root_that_cannot_be_written(site: Site) -> None:
    """The root is a file: no shim can attach, no agent can look; the job is as ever."""
    file = site.folder / "root"
    file.write_text("")
    outcome = site.watch(forked("--progress", str(site.progress)), SCOUTD_ROOT=str(file)).finish()
    expect.no_fault(outcome)
    assert site.steps() == 12
    assert "Traceback" not in outcome.err, str(outcome)
    site.assert_clean()
