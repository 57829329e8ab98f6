"""A slice of the randomised hang campaign, so that the whole of it cannot rot."""

from __future__ import annotations

import pytest

from tests.campaign.hang import choose, run


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_random_hang_is_named(seed: int) -> None:
    case = choose(seed)
    assert run(case).names == (case.rank,), case
