"""One rank calls something else than the others: that rank alone, and both fingerprints are shown.

What Gloo does about it differs (it hangs, or aborts a rank that may be innocent); the verdict must not.
"""

from __future__ import annotations

import pytest

from tests.e2e import expect
from tests.e2e.harness import Site, forked, torchrun


@pytest.mark.parametrize("rank", [1, 0])
def test_broadcast_instead_of_all_reduce(site: Site, rank: int) -> None:
    outcome = site.run(forked("--fault", "metric-broadcast", "--rank", str(rank)))
    verdict = expect.blames(outcome, "COLLECTIVE_MISMATCH", [rank])
    expect.fingerprints(verdict, "broadcast", "all_reduce")
    expect.stopped(outcome)
    site.assert_clean()


@pytest.mark.parametrize("rank", [2, 0])
@pytest.mark.parametrize(("fault", "size"), [("metric-smaller", "768"), ("metric-larger", "1536")])
def test_another_size(site: Site, fault: str, size: str, rank: int) -> None:
    outcome = site.run(forked("--fault", fault, "--rank", str(rank)))
    verdict = expect.blames(outcome, "COLLECTIVE_MISMATCH", [rank])
    expect.fingerprints(verdict, size, "1024")
    expect.stopped(outcome)
    site.assert_clean()


def test_another_size_under_torchrun(site: Site) -> None:
    outcome = site.run(torchrun("--fault", "metric-larger", "--rank", "1"))
    verdict = expect.blames(outcome, "COLLECTIVE_MISMATCH", [1])
    expect.fingerprints(verdict, "1536", "1024")
    site.assert_clean()
