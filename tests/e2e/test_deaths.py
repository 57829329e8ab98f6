"""One rank dies: that rank alone, although all others die or fail right after it."""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import JOBS, Site, forked, line_of, named, torchrun

LAUNCHERS = {"torchrun": torchrun, "fork": forked}
LATER = ["--step", "30", "--steps", "40"]
"""A second into the job: every rank has been seen by the agent, which looks four times a second."""


@pytest.mark.parametrize(("launcher", "rank"), [("torchrun", 1), ("torchrun", 0), ("fork", 1), ("fork", 0)])
def test_killed(site: Site, launcher: str, rank: int) -> None:
    outcome = site.run(LAUNCHERS[launcher]("--fault", "kill", "--rank", str(rank), *LATER))
    verdict = expect.blames(outcome, "PROCESS_DEAD", [rank], phase="FORWARD", operation="blocks.1")
    assert "SIGKILL" in verdict["summary"] + str(verdict["implicated"]), verdict
    expect.stopped(outcome)
    site.assert_clean()


def test_killed_between_steps(site: Site) -> None:
    outcome = site.run(forked("--fault", "kill-between", "--rank", "3", *LATER))
    expect.blames(outcome, "PROCESS_DEAD", [3])
    site.assert_clean()


@pytest.mark.parametrize(("launcher", "rank"), [("torchrun", 1), ("fork", 0)])
def test_exception(site: Site, launcher: str, rank: int) -> None:
    outcome = site.run(LAUNCHERS[launcher]("--fault", "raise", "--rank", str(rank), *LATER))
    verdict = expect.blames(outcome, "PROCESS_DEAD", [rank])
    notes = [note for note in verdict["death_notes"] if note.get("rank", 0) == rank]
    assert [(n["type"], n["message"]) for n in notes] == [("ValueError", "bad batch 17")], verdict
    line = line_of(JOBS / "faults.py", "# fault: raise")
    assert f"faults.py:{line}" in notes[0]["user_location"], notes
    assert "ValueError" in verdict["summary"], verdict["summary"]
    expect.stopped(outcome)
    site.assert_clean()


def test_exception_while_others_wait_for_nobody(site: Site) -> None:
    """Between two steps no collective is pending anywhere when the rank dies."""
    outcome = site.run(forked("--fault", "raise-between", "--rank", "2", *LATER))
    verdict = expect.blames(outcome, "PROCESS_DEAD", [2])
    assert [n["type"] for n in verdict["death_notes"] if n.get("rank", 0) == 2] == ["ValueError"], verdict
    site.assert_clean()


def test_a_rank_that_leaves_with_an_exit_code(site: Site) -> None:
    outcome = site.run(forked("--fault", "leave", "--rank", "1", *LATER))
    verdict = expect.blames(outcome, "PROCESS_DEAD", [1])
    assert "9" in verdict["implicated"][0]["reason"], verdict
    site.assert_clean()


def test_killed_before_anybody_looked(site: Site) -> None:
    """Within the first step: the rank is named all the same; of the others not all may have been seen."""
    outcome = site.run(forked("--fault", "kill", "--rank", "1", "--step", "1"))
    verdict = outcome.fault
    assert (verdict["cause"], named(verdict)) == ("PROCESS_DEAD", [1]), str(outcome)
    expect.stopped(outcome)
    site.assert_clean()
