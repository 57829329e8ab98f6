"""Transcripts against their golden files; ``python -m tests.simulation.scenarios --update`` rewrites them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scoutd.agent.verdict import State
from tests.simulation import oracle
from tests.simulation.scenarios import GOLDEN, SCENARIOS, transcript
from tests.simulation.world import World


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_transcript(scenario: Callable[[], World]) -> None:
    assert transcript(scenario) == (GOLDEN / f"{scenario.__name__}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_in_the_end_all_agents_of_a_whole_network_say_the_same(scenario: Callable[[], World]) -> None:
    world = scenario()
    assert oracle.wrong_names(world) == []
    living = [a for n, a in world.agents.items() if a.listening and n not in world.network.isolated]
    held = {
        a.node: sorted(v.id for v in a.party.verdicts if v.state is State.CONFIRMED and v.implicated)
        for a in living
    }
    assert len({tuple(ids) for ids in held.values()}) == 1, held
