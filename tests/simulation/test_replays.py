"""Slow ranks of a peer group that spans many nodes: named alike by all agents; healthy jobs stay quiet."""

from __future__ import annotations

import random

import pytest

from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Cause, State
from tests.simulation.network import Weather
from tests.simulation.program import Grid
from tests.simulation.replaying import Replays
from tests.simulation.scenarios import OPS
from tests.simulation.trainers import Training
from tests.simulation.world import World


def job(seed: int, nodes: int, each: int, replays: Replays, loss: float = 0.0) -> World:
    weather = Weather(loss=loss, duplication=loss)
    world = World(seed, Settings(stall_timeout_s=30.0), weather, replays=replays)
    grid = Grid({"dp": nodes * each, "tp": 1})
    training = Training(world.timeline, random.Random(seed), grid, OPS, [], compute_s=0.5)
    world.populate(nodes, each, training)
    return world


def alarmed(world: World) -> list[str]:
    return [a.node for a in world.agents.values() if a.party.exchange.alarmed(a.now)]


@pytest.mark.parametrize(("nodes", "each", "loss"), [(4, 1, 0.0), (8, 2, 0.2), (16, 4, 0.1)])
def test_a_slow_rank_is_named_once_and_alike_by_all(nodes: int, each: int, loss: float) -> None:
    slow = nodes * each - 2
    world = job(1, nodes, each, Replays(1, nodes * each, 0.02, slow={slow: 1.5}), loss)
    world.run(45.0)
    told = {}
    for node in world.agents:
        (verdict,) = world.confirmed(node)
        assert (verdict.cause, [i.rank for i in verdict.implicated]) == (Cause.COMPUTE_STRAGGLER, [slow])
        said = (verdict.id, verdict.summary, verdict.implicated, verdict.cleared, verdict.evidence)
        told[said] = node
    assert len(told) == 1, "in the same words"
    assert len(next(iter(told))[3]) == nodes * each - 1


def test_a_wrong_and_a_slow_rank_are_named_alike_by_all_although_messages_are_lost() -> None:
    world = job(4, 8, 2, Replays(4, 16, 0.02, slow={9: 1.5}, wrong={4: 2}), loss=0.2)
    world.run(50.0)
    told = {}
    for node in world.agents:
        newest = {verdict.id: verdict for verdict in reversed(world.confirmed(node))}.values()
        told[tuple(sorted((v.cause.value, v.implicated, v.summary, v.cleared) for v in newest))] = node
    assert len(told) == 1, "in the same words"
    named = [(cause, [i.rank for i in implicated]) for cause, implicated, *_ in next(iter(told))]
    assert named == [("COMPUTE_STRAGGLER", [9]), ("SDC_OUTPUT", [4])]


def test_a_slow_rank_that_recovers_is_forgiven_by_all() -> None:
    replays = Replays(2, 8, 0.02, slow={3: 2.0})
    world = job(2, 4, 2, replays)
    world.run(25.0)
    replays.slow = {}
    world.run(70.0)
    for agent in world.agents.values():
        assert [v.state for v in agent.party.verdicts] == [State.RESOLVED]
    assert alarmed(world) == []


def test_jitter_among_512_ranks_on_64_nodes_never_raises_an_alarm() -> None:
    """Five rounds of 5 %: nothing but probes leaves a node."""
    world = job(3, 64, 8, Replays(3, 512, 0.05, every_s=3.0, rounds=5))
    for second in range(3, 34, 3):
        world.run(second)
        assert alarmed(world) == []
    agreed = [agent.party.core.replays.tally.agreed for agent in world.agents.values()]
    assert agreed == [5] * 64
    assert world.said == []
