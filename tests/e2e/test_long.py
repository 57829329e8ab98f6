"""A healthy job for minutes, with long silences of every kind and a stall timeout of five seconds."""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import Site, forked


def healthy(site: Site, seconds: int) -> None:
    job = forked("--seconds", str(seconds), ranks=4, script="healthy.py")
    outcome = site.run(job, deadline_s=seconds + 120.0)
    expect.no_fault(outcome)
    expect.suppressed(outcome, "checkpoint")
    expect.suppressed(outcome, "compile")
    site.assert_clean()


def test_twenty_seconds(site: Site) -> None:
    healthy(site, 20)


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_three_minutes(site: Site) -> None:
    healthy(site, 180)
