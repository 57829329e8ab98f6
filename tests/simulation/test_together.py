"""Several ranks fail at about the same time, on different nodes: all agents end with one verdict.

Whose evidence an agent gets first, and how long it was on its way, is another for every agent.
"""

from __future__ import annotations

import pytest

from scoutd.agent.settings import Settings
from tests.simulation import campaign, oracle
from tests.simulation.network import Weather
from tests.simulation.scenarios import training
from tests.simulation.trainers import Fault
from tests.simulation.world import World

NODES = 12
SEEDS = range(6)


def play(seed: int, kinds: tuple[str, str], loss: float) -> World:
    """A rank of node 1 and one of node 4 fail in the same operation of step 8."""
    world = World(seed, Settings(stall_timeout_s=3.0), Weather(loss=loss, mean_delay_s=0.02))
    faults = [Fault(kinds[0], 3, 8, 4), Fault(kinds[1], 8, 8, 4)]
    world.populate(NODES, 2, training(world, faults, nodes=NODES))
    world.run(14)
    return world


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kinds", [("kill", "kill"), ("kill", "exception")])
def test_deaths_on_two_nodes(seed: int, kinds: tuple[str, str]) -> None:
    world = play(seed, kinds, loss=0.1)
    held = [oracle.held(world, node) for node in world.agents]
    assert all(each == held[0] for each in held)
    assert len(held[0]) == 1
    assert oracle.wrong_names(world) == []


@pytest.mark.parametrize("seed", [392, 835, 863, 872])
def test_clusters_in_which_agents_once_ended_with_different_verdicts(seed: int) -> None:
    outcome, _ = campaign.run(seed)
    assert (outcome.agree, outcome.same_names, outcome.wrong, outcome.missed) == (True, True, [], [])
