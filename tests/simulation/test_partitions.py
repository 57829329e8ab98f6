"""While a partition lasts each side says one thing; when it is over all agents do."""

from __future__ import annotations

import pytest

from tests.simulation import oracle
from tests.simulation.partitions import END_S, SETTLED_S, SIDES, apart, said_by

SLICE = 16


@pytest.mark.parametrize("seed", range(SLICE))
def test_each_side_agrees_with_itself_and_in_the_end_all_agree(seed: int) -> None:
    play(seed)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_a_thousand_partitions() -> None:
    for seed in range(1000):
        play(seed)


def play(seed: int) -> None:
    """One statement per side: who is missing. Whoever had proven before the links failed which rank it was
    keeps that, and nobody else is named."""
    world = apart(seed)
    world.run(SETTLED_S)
    for side in SIDES:
        told = said_by(world, side)
        partition = [{w for w in words if w[1] == "NODE_UNREACHABLE"} for words in told]
        proven = [{w for w in words if w[1] == "RANK_STALLED"} for words in told]
        assert all(a | b == words != set() for a, b, words in zip(partition, proven, told, strict=True)), seed
        assert len({frozenset(words) for words in partition if words}) <= 1, seed
    world.run(END_S)
    everybody = said_by(world, (*SIDES[0], *SIDES[1]))
    assert all(words == everybody[0] for words in everybody), seed
    assert [word[1] for word in everybody[0]] == ["RANK_STALLED"], seed
    assert oracle.wrong_names(world) == [], seed
