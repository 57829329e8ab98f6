"""Hybrid-parallel layouts: a hang spreads through several groups, and one rank alone has caused it."""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import Site, cleared, forked

WORLDS = {"dp-tp": 6, "pp-dp": 6, "fsdp2": 4, "hsdp": 4}
PHASES = {"forward": "FORWARD", "backward": "BACKWARD", "optimizer": "OPTIMIZER"}


@pytest.mark.parametrize("place", PHASES)
@pytest.mark.parametrize(
    ("layout", "rank"), [("dp-tp", 3), ("pp-dp", 1), ("pp-dp", 4), ("fsdp2", 2), ("hsdp", 1)]
)
def test_one_rank_hangs(site: Site, layout: str, rank: int, place: str) -> None:
    world = WORLDS[layout]
    job = forked("--layout", layout, "--place", place, "--rank", str(rank), ranks=world, script="layouts.py")
    outcome = site.run(job, deadline_s=180.0)
    verdict = expect.blames(outcome, "RANK_STALLED", [rank], world=world, phase=PHASES[place])
    innocent = cleared(verdict)
    assert all(innocent.values()), f"everybody waits for somebody\n{verdict}\n{outcome}"
    assert rank in {r for waits_for in innocent.values() for r in waits_for}
    expect.stopped(outcome)
    site.assert_clean()


@pytest.mark.parametrize("layout", WORLDS)
def test_a_healthy_job_ends_without_a_fault(site: Site, layout: str) -> None:
    job = forked("--layout", layout, "--steps", "30", ranks=WORLDS[layout], script="layouts.py")
    expect.no_fault(site.run(job, deadline_s=180.0))
    site.assert_clean()
