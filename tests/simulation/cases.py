"""One random case per seed: a cluster, its network, its program, and what goes wrong when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from scoutd.agent.settings import Settings
from tests.simulation.network import Weather
from tests.simulation.program import random_grid, random_step
from tests.simulation.trainers import DEATHS, HANGS, Fault, Training
from tests.simulation.world import World

KINDS = (*HANGS, "sleep", "sleep", "stop", *DEATHS, "mismatch")


@dataclass
class Case:
    """``troubles``: (when, what, nodes) about agents and nodes; ``horizon_s``: when everything is decided."""

    seed: int
    world: World
    text: str
    faults: list[Fault]
    horizon_s: float
    troubles: list[tuple[float, str, tuple[str, ...]]] = field(default_factory=list)


def build(seed: int, most_nodes: int = 64) -> Case:
    """The case of this seed, ready to run."""
    rng = random.Random(f"case {seed}")
    nodes = min(most_nodes, int(3 * (most_nodes / 3 + 1) ** rng.random()))
    per_node = rng.choice([r for r in (1, 2, 4, 8) if nodes * r <= 128])
    grid = random_grid(rng, nodes * per_node)
    ops = random_step(rng, grid)
    weather = Weather(
        loss=rng.choice((0.0, 0.0, rng.uniform(0, 0.3))),
        duplication=rng.choice((0.0, 0.1)),
        mean_delay_s=rng.choice((0.001, 0.005, 0.02)),
    )
    stall_s = rng.choice((3.0, 5.0, 5.0, 8.0))
    world = World(seed, Settings(stall_timeout_s=stall_s, heartbeat_limit_s=min(5.0, stall_s * 0.8)), weather)
    faults = _faults(rng, grid.world_size, len(ops))
    recorder, resets = rng.random() < 0.25, rng.random() < 0.7
    training = Training(world.timeline, random.Random(f"run {seed}"), grid, ops, faults, resets, recorder)
    warm = rng.random() < 0.8
    world.populate(nodes, per_node, training, warm)
    slow = stall_s * 3 if any(f.kind == "busy" for f in faults) else 0.0
    case = Case(seed, world, "", faults, 4.0 + stall_s + 7.0 + slow)
    _troubles(rng, case, list(world.agents))
    case.text = (
        f"seed {seed}: {nodes} nodes × {per_node}, stall {stall_s:g} s, grid {grid.shape}, "
        f"loss {weather.loss:.0%}, "
        f"{'recorder' if recorder else 'public'}, {'resets' if resets else 'no resets'}, "
        f"{'warm' if warm else 'cold'}; faults {[(f.kind, f.rank, f.step, f.op) for f in faults]}; "
        f"troubles {[(round(at, 1), what, who) for at, what, who in case.troubles]}"
    )
    return case


def _faults(rng: random.Random, world_size: int, ops: int) -> list[Fault]:
    count = rng.choices((0, 1, 2), (1, 6, 3))[0]
    step = rng.randint(4, 12)
    return [
        Fault(rng.choice(KINDS), rank, step + rng.choice((0, 0, 1)), rng.randrange(ops))
        for rank in rng.sample(range(world_size), count)
    ]


def _troubles(rng: random.Random, case: Case, nodes: list[str]) -> None:
    world = case.world
    kind = rng.choices(
        ("", "kill", "restart", "forget", "stop", "lose", "cut one", "cut few", "one way"),
        (50, 10, 6, 3, 6, 8, 6, 6, 3),
    )[0]
    if not kind:
        return
    at = rng.uniform(1.0, 10.0)
    some = max(1, (len(nodes) - 1) // 2)
    few = rng.sample(nodes, rng.randint(1, some)) if kind == "cut few" else [rng.choice(nodes)]
    node = few[0]
    case.troubles.append((at, kind, tuple(few)))
    agent = world.agents[node]
    again = rng.uniform(0.5, 6.0)
    timeline = world.timeline
    if kind in ("kill", "restart", "forget"):
        timeline.after(at, lambda: world.kill_agent(node))
        if kind != "kill":
            timeline.after(at + again, lambda: agent.start(forget=kind == "forget"))
    elif kind == "stop":
        timeline.after(at, lambda: world.stop_agent(node))
        timeline.after(at + again, agent.go_on)
    elif kind == "lose":
        timeline.after(min(at, 4.0), lambda: world.lose_node(node))
    else:
        timeline.after(at, lambda: world.cut(few, both_ways=kind != "one way"))
        if rng.random() < 0.5:
            timeline.after(at + again, world.network.heal)
