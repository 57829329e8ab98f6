"""Random clusters: no healthy rank is ever named, and whoever has to be named is.

The slice plays small clusters; ``python -m tests.simulation.campaign --seeds 1000`` plays large ones, too.
A failing seed is played alone with ``--seed S --trace``.
"""

from __future__ import annotations

import pytest

from tests.simulation import campaign

SLICE = 60


@pytest.mark.parametrize("first", range(0, SLICE, 6))
def test_no_healthy_rank_is_named_and_faults_are_found(first: int) -> None:
    outcomes = [campaign.run(seed, most_nodes=10)[0] for seed in range(first, first + 6)]
    assert [(o.text, o.wrong[0]) for o in outcomes if o.wrong] == []
    assert [o.text for o in outcomes if o.missed] == []


@pytest.mark.campaign
@pytest.mark.timeout(7200)
def test_a_thousand_clusters() -> None:
    assert campaign.main(["--seeds", "1000"]) == 0
