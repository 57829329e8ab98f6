"""Splits of an all_to_all that do not fit together: who dealt them out, not who failed over them."""

from __future__ import annotations

from tests.e2e import expect
from tests.e2e.harness import Site, forked


def test_the_rank_that_sends_too_much_is_named_and_not_the_one_that_aborts(site: Site) -> None:
    outcome = site.run(forked("--fault", "more", "--rank", "1", script="exchange.py"))
    verdict = expect.blames(outcome, "COLLECTIVE_MISMATCH", [1], operation="all_to_all_single")
    assert "rank 1 sends" in verdict["summary"], verdict["summary"]
    site.assert_clean()


def test_too_little_hangs_nobody_and_is_found_all_the_same(site: Site) -> None:
    outcome = site.run(forked("--fault", "less", "--rank", "2", script="exchange.py"))
    verdict = outcome.fault
    assert (verdict["cause"], verdict["symptom"]) == ("COLLECTIVE_MISMATCH", "SDC"), f"{verdict}\n{outcome}"
    assert [i.get("rank", 0) for i in verdict["implicated"]] == [2], f"{verdict}\n{outcome}"
    expect.stopped(outcome)
    site.assert_clean()


def test_splits_that_change_with_every_step_are_no_fault(site: Site) -> None:
    expect.no_fault(site.run(forked("--steps", "60", script="exchange.py")))
    site.assert_clean()
