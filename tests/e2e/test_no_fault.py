"""Long silences that are no faults, and jobs in which nothing happens at all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.e2e import expect
from tests.e2e.harness import PATIENT, Site, forked, torchrun, until


def limits(site: Site) -> str:
    """A configuration in which a checkpoint may take a minute."""
    file = Path(site.folder, "scoutd.toml")
    file.write_text("[stall]\ncheckpoint_s = 60\n")
    return str(file)


def test_a_slow_checkpoint(site: Site) -> None:
    job = forked("--fault", "save", "--rank", "0", "--barrier")
    outcome = site.run(job, "--config", limits(site))
    expect.no_fault(outcome)
    expect.suppressed(outcome, "checkpoint")
    site.assert_clean()


def test_a_checkpoint_in_one_silent_write(site: Site) -> None:
    job = forked("--fault", "save-frozen", "--rank", "0", "--barrier")
    outcome = site.run(job, "--config", limits(site))
    expect.no_fault(outcome)
    expect.suppressed(outcome, "checkpoint")
    site.assert_clean()


def test_a_slow_compile(site: Site) -> None:
    outcome = site.run(forked("--fault", "compile", "--rank", "1"))
    expect.no_fault(outcome)
    expect.suppressed(outcome, "compile")
    site.assert_clean()


def test_a_slow_raw_write(site: Site) -> None:
    """No library call announces it: only the bytes tell that the rank works."""
    outcome = site.run(forked("--fault", "write", "--rank", "0", "--barrier"))
    expect.no_fault(outcome)
    expect.suppressed(outcome, "writing", "busy")
    site.assert_clean()


def test_every_rank_pauses(site: Site) -> None:
    outcome = site.run(forked("--fault", "pause-all"))
    expect.no_fault(outcome)
    expect.suppressed(outcome, "no rank waits")
    site.assert_clean()


def test_every_rank_is_paused_from_outside(site: Site) -> None:
    """As a debugger, a suspended container or a frozen cgroup does; it goes on where it was."""
    job = forked("--progress", str(site.progress), "--steps", "40")
    running = site.watch(job)
    until(lambda: site.steps() >= 5, "five steps")
    ranks = [
        pid for pid, line in site.processes().items() if "jobs/forked.py" in line and "scoutd run" not in line
    ]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: running.verdicts(), "an alarm that is held back", 30.0)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    outcome = running.finish()
    expect.no_fault(outcome)
    expect.suppressed(outcome, "no rank waits", "stopped")
    site.assert_clean()


def test_a_healthy_job(site: Site) -> None:
    """It ends as without scoutd: same losses to the last bit, no verdict, nothing left."""
    plain = site.start(*forked("--progress", str(site.progress))).finish()
    alone = site.losses()
    outcome = site.run(forked("--progress", str(site.progress)), *PATIENT)
    assert plain.code == 0
    assert len(alone) == 4
    assert site.losses() == alone
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    site.assert_clean()


def test_a_healthy_job_under_torchrun(site: Site) -> None:
    outcome = site.run(torchrun(), *PATIENT)
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    assert outcome.out == "", "scoutd writes to standard error only"
    site.assert_clean()
