"""Jobs that are not alone, and ranks that start in other ways than under torchrun."""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import PATIENT, SCOUTD, Site, forked, launched, named, torchrun, until

LATER = ["--step", "30", "--steps", "40"]
"""A second into the job: every rank has been seen by the agent."""

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""In torchrun's own store, the addresses of the first attempt outlive it: the second attempt of torch 2.13
connects to dead ranks and fails, with or without scoutd. With this each attempt has a store of its own."""


def test_two_jobs_at_once(site: Site) -> None:
    """One hangs, the other is healthy: each `scoutd run` sees its own."""
    progress = ("--progress", str(site.progress), "--steps", "400")
    healthy = site.watch(forked(*progress), *PATIENT)
    until(lambda: site.steps() > 0, "a first step of the healthy job")
    hung = site.run(forked("--fault", "sleep-forward", "--rank", "2"))
    expect.blames(hung, "RANK_STALLED", [2])
    assert 0 < site.steps() < 400, "the healthy job outlives the other one"
    outcome = healthy.finish()
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    site.assert_clean()


def test_two_jobs_under_one_agent(site: Site) -> None:
    """Two jobs of one user, started alike at the same time, are two jobs."""
    both = " & ".join(["$0 $1 4 $2 --fault sleep-input --rank 1", "$0 $1 3 $2 --steps 300"]) + " & wait"
    running = site.watch(["bash", "-c", both, *without_ranks()], stop=False)
    seen = until(lambda: [v for v in running.verdicts() if v["state"] == "CONFIRMED"], "a verdict")
    status = site.ask("status")
    sizes = {int(job["world_size"]): job for job in status["jobs"]}
    assert sorted(sizes) == [3, 4], status
    assert len({job["job"] for job in status["jobs"]}) == 2, status
    assert [named(v) for v in seen] == [[1]]
    assert seen[0]["job"] == sizes[4]["job"]
    running.end()
    site.assert_clean()


def without_ranks() -> list[str]:
    """Interpreter, launcher and script of ``forked``; the number of ranks is put between them."""
    python, launcher, _, script = forked()
    return [python, launcher, script]


def test_torchrun_restarts_the_job(site: Site) -> None:
    """The first attempt dies, the second hangs: one job, two generations, one verdict for each."""
    faults = ["--fault", "raise", "--rank", "1", "--second-fault", "sleep-forward", "--second-rank", "2"]
    job = torchrun(*faults, *LATER, options=["--max-restarts=1"])
    running = site.watch(job, stop=False, **OWN_STORE)
    until(lambda: len([v for v in running.verdicts() if v["state"] == "CONFIRMED"]) > 1, "two verdicts", 90.0)
    outcome = running.end()
    first, second = outcome.faults
    assert (first["cause"], named(first)) == ("PROCESS_DEAD", [1]), str(outcome)
    assert (second["cause"], named(second)) == ("RANK_STALLED", [2]), str(outcome)
    assert first["job"] == second["job"]
    assert int(second["generation"]) == int(first["generation"]) + 1
    site.assert_clean()


def test_torchrun_restarts_and_recovers(site: Site) -> None:
    faults = ["--fault", "kill", "--rank", "0", "--clean-restart"]
    job = torchrun(*faults, *LATER, options=["--max-restarts=1"])
    outcome = site.watch(job, stop=False, **OWN_STORE).finish()
    expect.blames(outcome, "PROCESS_DEAD", [0])
    assert outcome.code == 0, str(outcome)
    site.assert_clean()


def test_spawned_ranks(site: Site) -> None:
    outcome = site.run(launched("spawned.py", "--fault", "sleep-forward", "--rank", "1"))
    expect.blames(outcome, "RANK_STALLED", [1], phase="FORWARD", operation="blocks.1")
    expect.waits(outcome, 1)
    expect.stopped(outcome)
    site.assert_clean()


def test_an_exception_in_a_spawned_rank(site: Site) -> None:
    outcome = site.run(launched("spawned.py", "--fault", "raise", "--rank", "2", *LATER))
    expect.blames(outcome, "PROCESS_DEAD", [2])
    site.assert_clean()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_dataloader_workers_are_not_ranks(site: Site, context: str) -> None:
    job = ["--workers", "1", "--context", context, "--progress", str(site.progress), "--steps", "60"]
    running = site.watch(forked(*job, ranks=2), *PATIENT)
    until(lambda: site.steps() > 2, "three steps")
    # Three steps may be over before the agent has looked again.
    until(lambda: sum(len(job["ranks"]) for job in site.ask("status")["jobs"]) > 1, "both ranks are seen")
    status = site.ask("status")
    outcome = running.finish()
    (seen,) = status["jobs"]
    assert [int(r.get("rank", 0)) for r in seen["ranks"]] == [0, 1], status
    assert not status.get("unobserved"), status
    expect.no_fault(outcome)
    assert outcome.verdicts == [], str(outcome)
    site.assert_clean()


def test_an_existing_sitecustomize_still_runs(site: Site) -> None:
    folder = site.folder / "own"
    folder.mkdir()
    trace = site.folder / "trace"
    (folder / "sitecustomize.py").write_text(
        f"import os\nopen({str(trace)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    )
    running = site.watch(forked("--fault", "sleep-forward"), PYTHONPATH=str(folder))
    outcome = running.finish()
    expect.blames(outcome, "RANK_STALLED", [1])
    assert trace.read_text().count("\n") >= 1
    site.assert_clean()


def test_isolated_ranks_are_reported_as_unobserved(site: Site) -> None:
    """`python -I` ignores what attaches the shim: unharmed, and the status says it."""
    job = launched("isolated.py", "--progress", str(site.progress), "--steps", "100000")
    running = site.watch(job)

    def unobserved() -> list[int]:
        status = site.ask("status") or {}
        return sorted(int(u.get("rank", 0)) for u in status.get("unobserved", []))

    until(lambda: unobserved() == [0, 1, 2, 3], "four unobserved ranks", 60.0)
    until(lambda: site.steps() > 0, "a first step")
    assert running.end().faults == []
    site.assert_clean()


def test_without_scoutd_run_or_agent(site: Site) -> None:
    """`-m scoutd.shim` and nobody who looks: the job ends as ever and cleans up behind itself."""
    job = torchrun("--progress", str(site.progress), options=["-m", "scoutd.shim"])
    outcome = site.start(*job).finish()
    assert outcome.code == 0, str(outcome)
    assert "scoutd" not in outcome.err, str(outcome)
    assert site.steps() == 12
    site.assert_clean()


def test_the_command_is_installed(site: Site) -> None:
    assert site.start(SCOUTD, "--help").finish().code == 0
