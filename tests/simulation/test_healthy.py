"""Half an hour of a healthy job in virtual time: long silences of every kind, and no fault verdict."""

from __future__ import annotations

import random
from collections.abc import Mapping

from scoutd.agent.evidence import Phase
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import State
from tests.simulation.program import Grid
from tests.simulation.scenarios import OPS
from tests.simulation.trainers import Trainer, Training
from tests.simulation.world import World

MINUTES = 30
STALL_S = 5.0
LONGEST_S = {Phase.CHECKPOINT: 90.0, Phase.COMPILE: 45.0, Phase.EVAL: 60.0, Phase.FORWARD: 4.0}
"""What the job's silences last at most; in FORWARD a garbage collection or a slow batch, below the limit."""


class Interrupted(Training):
    """A job whose ranks now and then do something long before a step: (rank, step) → phase and seconds."""

    interruptions: Mapping[tuple[int, int], tuple[Phase, float]] = {}
    taken: set[tuple[int, int]]

    def _go(self, trainer: Trainer) -> None:
        key = (trainer.rank, trainer.step)
        if trainer.op == 0 and trainer.can_move and key in self.interruptions and key not in self.taken:
            self.taken.add(key)
            phase, seconds = self.interruptions[key]
            self._move(trainer)
            trainer.phase = phase
            self._later(trainer, seconds)
        else:
            super()._go(trainer)


def interruptions(dice: random.Random, ranks: int) -> dict[tuple[int, int], tuple[Phase, float]]:
    """A checkpoint of rank 0 every 40 steps, evaluations of all, recompilations and slow batches of some."""
    found: dict[tuple[int, int], tuple[Phase, float]] = {}

    def put(rank: int, step: int, phase: Phase) -> None:
        found[rank, step] = (phase, dice.uniform(0.1, 1.0) * LONGEST_S[phase])

    for step in range(5, 2000, 3):
        put(dice.randrange(ranks), step, Phase.FORWARD)
    for step in range(20, 2000, 40):
        put(0, step, Phase.CHECKPOINT)
    for step in range(30, 2000, 60):
        put(dice.randrange(ranks), step, Phase.COMPILE)
        for rank in range(ranks):
            put(rank, step + 15, Phase.EVAL)
    return found


def job(seed: int) -> World:
    world = World(seed, Settings(stall_timeout_s=STALL_S))
    grid = Grid({"dp": 2, "tp": 2})
    training = Interrupted(world.timeline, random.Random(seed), grid, OPS, [], compute_s=0.3)
    training.interruptions = interruptions(random.Random(seed), 4)
    training.taken = set()
    world.populate(2, 2, training)
    return world


def test_half_an_hour_without_a_fault() -> None:
    world = job(1)
    world.run(MINUTES * 60)
    assert world.training.ranks[0].step > 100
    assert [s.verdict.summary for s in world.said if s.verdict.state is State.CONFIRMED] == []
    held = {s.verdict.phase for s in world.said if s.verdict.state is State.SUPPRESSED}
    assert {Phase.CHECKPOINT, Phase.COMPILE, Phase.EVAL} <= held, "alarms that were held back are said"


def test_a_hang_after_all_that_is_found() -> None:
    world = job(2)
    world.timeline.after(170, lambda: world.training.strike(3, "sleep"))
    world.run(300)
    names = {i.rank for s in world.said if s.verdict.state is State.CONFIRMED for i in s.verdict.implicated}
    assert names == {3}
