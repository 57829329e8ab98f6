"""One rank hangs in its own code: that rank alone, what it does, and who only waits for it."""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import JOBS, Site, forked, line_of, torchrun


@pytest.mark.parametrize(
    ("fault", "phase", "operation"),
    [
        ("sleep-forward", "FORWARD", "blocks.1"),
        ("sleep-backward", "BACKWARD", "blocks.1"),
        ("sleep-between", "BETWEEN", "optimizer"),
        ("sleep-input", "INPUT", "__next__"),
    ],
)
def test_a_rank_sleeps_for_ever(site: Site, fault: str, phase: str, operation: str) -> None:
    outcome = site.run(forked("--fault", fault, "--rank", "1"))
    verdict = expect.blames(outcome, "RANK_STALLED", [1], phase=phase, operation=operation)
    expect.waits(outcome, 1)
    expect.stopped(outcome)
    frames = [f for stack in verdict["stacks"] if stack.get("rank", 0) == 1 for f in stack["frames"]]
    assert any(f["function"] == "sleep" and f["file"].endswith("faults.py") for f in frames), verdict[
        "stacks"
    ]
    site.assert_clean()


def test_under_torchrun(site: Site) -> None:
    outcome = site.run(torchrun("--fault", "sleep-forward", "--rank", "2"))
    verdict = expect.blames(outcome, "RANK_STALLED", [2], phase="FORWARD", operation="blocks.1")
    expect.waits(outcome, 2)
    expect.stopped(outcome)
    line = line_of(JOBS / "faults.py", "time.sleep(FOREVER_S)")
    assert f"faults.py:{line}" in str(verdict), verdict
    assert "rank 2 " in verdict["summary"] + " ", verdict["summary"]
    site.assert_clean()


def test_rank_0_sleeps(site: Site) -> None:
    outcome = site.run(forked("--fault", "sleep-forward", "--rank", "0"))
    expect.blames(outcome, "RANK_STALLED", [0], phase="FORWARD", operation="blocks.1")
    expect.waits(outcome, 0)
    site.assert_clean()


def test_a_busy_loop_is_given_more_time_and_then_named(site: Site) -> None:
    """CPU time moves, so the limit is stretched (busy_factor); a loop without end is a stall all the same."""
    outcome = site.run(forked("--fault", "spin", "--rank", "3"), deadline_s=120.0)
    expect.blames(outcome, "RANK_STALLED", [3], phase="FORWARD", operation="blocks.1")
    expect.waits(outcome, 3)
    expect.stopped(outcome)
    held = [v for v in outcome.suppressed if v["state"] == "OPEN"]
    assert any("busy" in v["suppressed_because"] for v in held), str(outcome)
    site.assert_clean()


def test_a_worker_of_the_dataloader_never_answers(site: Site) -> None:
    outcome = site.run(forked("--fault", "sleep-input", "--rank", "1", "--workers", "2"))
    expect.blames(outcome, "RANK_STALLED", [1], phase="INPUT", operation="__next__")
    expect.waits(outcome, 1)
    site.assert_clean()
