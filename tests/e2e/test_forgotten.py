"""One rank does not make a call of another kind than collectives, in which the others wait."""

from __future__ import annotations

from tests.e2e import expect
from tests.e2e.harness import Site, forked


def test_a_group_that_one_rank_did_not_make(site: Site) -> None:
    outcome = site.run(forked("group", "--rank", "2", script="forgotten.py"))
    verdict = expect.blames(outcome, "COLLECTIVE_MISSING", [2])
    assert "new_group(ranks=0,1,3)" in verdict["summary"], verdict["summary"]
    expect.stopped(outcome)


def test_an_operation_on_the_store_to_which_one_rank_did_not_come(site: Site) -> None:
    outcome = site.run(forked("store", "--rank", "1", script="forgotten.py"))
    verdict = expect.blames(outcome, "STORE_WAIT", [1])
    assert "store wait all here" in verdict["summary"], verdict["summary"]
    expect.waits(outcome, 1)
