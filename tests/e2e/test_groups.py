"""Hangs in jobs of several groups: two at once, and one behind work in flight."""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import Site, cleared, forked, named


def test_two_hangs_that_have_nothing_to_do_with_each_other(site: Site) -> None:
    outcome = site.run(forked("two", "--hung", "1", "5", ranks=6, script="groups.py"))
    assert {v["cause"] for v in outcome.faults} == {"RANK_STALLED"}, str(outcome)
    assert sorted(rank for v in outcome.faults for rank in named(v)) == [1, 5], str(outcome)
    innocent = {rank for v in outcome.faults for rank in cleared(v)}
    assert innocent == {0, 2, 3, 4}, str(outcome)
    site.assert_clean()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_has_a_collective_in_flight_hangs(site: Site, rank: int) -> None:
    """Its own unfinished gather waits for a victim and is no excuse."""
    outcome = site.run(forked("prefetch", "--hung", str(rank), ranks=4, script="groups.py"))
    verdict = expect.blames(outcome, "RANK_STALLED", [rank])
    assert all(cleared(verdict).values()), f"everybody waits for somebody\n{verdict}"
    site.assert_clean()
