"""Four nodes that fall apart two against two, link by link, each direction at a moment of its own.

``apart(seed)`` is such a cluster: when which direction of which link fails, which agent is slow meanwhile
(stopped for a while, as on a machine that is too small), how much the network loses, and where a rank hangs
come from the seed. From ``WHOLE_S`` on the network is whole again.
"""

from __future__ import annotations

import random
from itertools import product

from scoutd.agent.settings import Settings
from tests.simulation import oracle
from tests.simulation.network import Weather
from tests.simulation.scenarios import training
from tests.simulation.timeline import Call
from tests.simulation.trainers import Fault
from tests.simulation.world import World

SIDES = (("node-0", "node-1"), ("node-2", "node-3"))
STALL_S = 4.0
SPLIT_S = 6.0
"""Every link between the sides has failed by then."""

SETTLED_S = 18.0
WHOLE_S = 19.0
END_S = 30.0


def apart(seed: int) -> World:
    """Ready to run; a rank hangs before, while or after the links fail."""
    rng = random.Random(f"apart {seed}")
    weather = Weather(loss=rng.choice((0.0, 0.1)), mean_delay_s=rng.choice((0.001, 0.02)))
    world = World(seed, Settings(stall_timeout_s=STALL_S), weather)
    fault = Fault("sleep", rng.randrange(8), rng.randint(4, 24), 4)
    world.populate(4, 2, training(world, [fault]))
    world.ever_away = {node for side in SIDES for node in side}
    for one, other in product(*SIDES):
        for source, target in ((one, other), (other, one)):
            world.timeline.after(rng.uniform(1.0, SPLIT_S), _failure(world, source, target))
    for node in rng.sample(list(world.agents), rng.randint(0, 2)):
        at = rng.uniform(1.0, SPLIT_S + 2)
        world.timeline.after(at, world.agents[node].stop)
        world.timeline.after(at + rng.uniform(0.3, 3.0), world.agents[node].go_on)
    world.timeline.after(WHOLE_S, world.network.heal)
    return world


def _failure(world: World, source: str, target: str) -> Call:
    return lambda: world.network.cut([source], [target], both_ways=False)


def said_by(world: World, nodes: tuple[str, ...]) -> list[set[tuple[object, ...]]]:
    """What each of these agents holds to be confirmed, in every word."""
    return [oracle.held(world, node) for node in nodes]
