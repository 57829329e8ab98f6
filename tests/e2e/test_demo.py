"""``scoutd demo`` as the README tells it: it says itself whether the verdict was right."""

from __future__ import annotations

import pytest

from tests.e2e.harness import SCOUTD, Site


@pytest.mark.parametrize(("fault", "cause"), [("hang", "RANK_STALLED"), ("corrupt", "SDC_OUTPUT")])
def test_the_demo_names_the_broken_rank(site: Site, fault: str, cause: str) -> None:
    ended = site.start(SCOUTD, "demo", "--fault", fault).finish(170.0)
    assert ended.code == 0, ended
    assert cause in ended.err
    assert "right: the verdict names rank 2 and nobody else" in ended.err
    site.assert_clean()
