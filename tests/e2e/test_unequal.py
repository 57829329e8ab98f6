"""Calls that differ where nothing hangs: the results are wrong, and a verdict says whose call it was."""

from __future__ import annotations

from tests.e2e import expect
from tests.e2e.harness import Outcome, Site, Verdict, forked, named


def wrong(outcome: Outcome, cause: str = "COLLECTIVE_MISMATCH") -> Verdict:
    """One fault without a hang, and the job came to its own end."""
    verdict = outcome.fault
    assert outcome.code == 0, str(outcome)
    assert (verdict["cause"], verdict["symptom"]) == (cause, "SDC"), f"{verdict}\n{outcome}"
    return verdict


def test_another_type_of_equal_size_in_one_step_is_named_though_the_job_ends_well(site: Site) -> None:
    job = forked("--fault", "dtype", "--rank", "2", "--step", "3", "--steps", "20", script="unequal.py")
    outcome = site.run(job, stop=False)
    verdict = wrong(outcome)
    assert named(verdict) == [2], str(outcome)
    expect.fingerprints(verdict, "int32", "float32")
    site.assert_clean()


def test_of_two_ranks_nobody_is_named(site: Site) -> None:
    job = forked("--fault", "op", "--step", "4", "--steps", "10", ranks=2, script="unequal.py")
    outcome = site.run(job, stop=False)
    verdict = wrong(outcome)
    assert (verdict["status"], named(verdict)) == ("INCONCLUSIVE", []), str(outcome)
    expect.fingerprints(verdict, "MAX", "SUM")
    site.assert_clean()


def test_views_of_another_type_and_refused_calls_are_no_fault(site: Site) -> None:
    expect.no_fault(site.run(forked("--fault", "legal", "--steps", "30", script="unequal.py")))
    site.assert_clean()
