"""A rank that does not come to ``init_process_group``, in which the others wait."""

from __future__ import annotations

from tests.e2e import expect
from tests.e2e.harness import JOBS, Site, forked, line_of, torchrun


def test_a_rank_that_never_comes_is_named_with_its_line(site: Site) -> None:
    outcome = site.run(torchrun("--rank", "2", script="starting.py"))
    verdict = expect.blames(outcome, "RANK_STALLED", [2], phase="INIT", operation="before init_process_group")
    expect.waits(outcome, 2)
    line = line_of(JOBS / "starting.py", "# never comes")
    assert f"starting.py:{line}" in verdict["summary"], verdict["summary"]
    assert outcome.code == 3, str(outcome)
    site.assert_clean()


def test_a_rank_that_works_before_it_comes_is_no_fault(site: Site) -> None:
    job = forked("--rank", "1", "--late", "work", "--seconds", "8", script="starting.py")
    outcome = site.run(job)
    expect.no_fault(outcome)
    expect.suppressed(outcome, "phase INIT")
    site.assert_clean()
