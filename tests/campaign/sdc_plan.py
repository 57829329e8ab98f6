"""The plan of the campaign of silent corruption: which round breaks what, drawn from a seed.

A *round* is one training step after which all recipes are replayed. It breaks nothing (a clean control), or
one bit, on one rank or on two, in one part of one recipe; or it is a tie, in which half of the group agrees
on another value, or one of two replicas has another one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scoutd.agent.verdict import Cause
from scoutd.shim.faults import Fault, Target

EMBEDDING, BLOCKS, HEAD, OPTIMIZER = "embed *", "blocks.{} *", "head *", "optimizer *"
LAYERS = 2
TARGETS: dict[str, tuple[Target, ...]] = {
    EMBEDDING: (Target.INPUT, Target.WEIGHTS, Target.OUTPUT, Target.GRADIENTS),
    BLOCKS: (Target.INPUT, Target.WEIGHTS, Target.OUTPUT, Target.INPUT_GRADIENTS, Target.GRADIENTS),
    HEAD: (Target.INPUT, Target.WEIGHTS, Target.OUTPUT, Target.INPUT_GRADIENTS, Target.GRADIENTS),
    OPTIMIZER: (Target.INPUT, Target.WEIGHTS, Target.OPTIMIZER),
}
CAUSES = {
    Target.INPUT: Cause.SDC_BROADCAST,
    Target.WEIGHTS: Cause.SDC_PARAMETER,
    Target.OUTPUT: Cause.SDC_OUTPUT,
    Target.INPUT_GRADIENTS: Cause.SDC_GRADIENT,
    Target.GRADIENTS: Cause.SDC_GRADIENT,
    Target.OPTIMIZER: Cause.SDC_OPTIMIZER,
}
WORLDS = {"ddp": 5, "fsdp2": 4, "hsdp": 6}


@dataclass(frozen=True)
class Round:
    """``sort`` is the class it is counted under. ``expected``: the ranks that have to be named; ``causes``:
    one of these. ``tie``: a verdict has to say that nobody can be named. ``live``: the weights of the live
    model break, not those of the replay. ``episode``: rounds with an equal one go on from each other; -1: the
    round stands alone."""

    sort: str
    faults: tuple[Fault, ...] = ()
    expected: frozenset[int] = frozenset()
    causes: frozenset[Cause] = frozenset()
    tie: bool = False
    live: bool = False
    episode: int = -1

    @property
    def clean(self) -> bool:
        return not self.faults


def plan(layout: str, seed: int, singles: int, cleans: int, extras: int) -> list[Round]:
    """The rounds of one job: ``singles`` single faults, ``cleans`` controls, and ``extras`` each of double
    faults and ties, in random order; then intermittent faults, each an episode of its own."""
    dice = random.Random(f"{layout} {seed}")
    world = WORLDS[layout]
    rounds = [_single(dice, layout, world, number) for number in range(singles)]
    rounds += [Round("clean") for _ in range(cleans)]
    if world >= 5:
        rounds += [_double(dice, world) for _ in range(extras)]
    if world % 2 == 0:
        rounds += [_tie(dice, world) for _ in range(extras)]
    if layout == "hsdp":
        rounds += [_shard(dice, world) for _ in range(extras)]
    dice.shuffle(rounds)
    return [*rounds, *_intermittent(dice, world, extras)]


def without_optimizer(rounds: list[Round]) -> list[Round]:
    """Those that broadcasts can show: an optimizer has no input that could be one."""
    return [round_ for round_ in rounds if not any(f.module.startswith("optimizer") for f in round_.faults)]


def _single(dice: random.Random, layout: str, world: int, number: int) -> Round:
    """Every fourth flips the lowest bit of the mantissa; NaNs, one-shots, live weights among the rest."""
    rank = dice.randrange(world)
    module, target = _where(dice)
    fault = Fault(
        target, rank, module, _place(module, target), bit=dice.randrange(32), seed=dice.getrandbits(32)
    )
    sort, causes = target.value, {CAUSES[target], Cause.NONFINITE}
    if layout == "ddp" and number % 10 == 3:
        live = Fault(Target.WEIGHTS, rank, "*", bit=dice.randrange(23), seed=dice.getrandbits(32))
        parameter = frozenset((Cause.SDC_PARAMETER,))
        return Round("live weights", (live,), frozenset((rank,)), parameter, live=True)
    if number % 4 == 0:
        fault, sort = _with(fault, bit=0), f"lowest bit of {target.value}"
    elif number % 9 == 1 and target is not Target.INPUT:
        fault, sort, causes = _with(fault, nan=True), "nan", {Cause.NONFINITE}
    elif target is Target.OPTIMIZER and layout == "ddp" and number % 2:
        fault, sort = _with(fault, place="state exp_avg*", bit=30), "optimizer state"
    elif number % 7 == 2:
        fault, sort = _with(fault, shots=1), "one-shot"
    elif target is Target.INPUT and module == EMBEDDING:
        fault = _with(fault, bit=0)  # an index; a larger one would lie outside of the table
    return Round(sort, (fault,), frozenset((rank,)), frozenset(causes))


def _where(dice: random.Random) -> tuple[str, Target]:
    kind = dice.choices(list(TARGETS), (2, 5, 2, 2))[0]
    return kind.format(dice.randrange(LAYERS)), dice.choice(TARGETS[kind])


def _place(module: str, target: Target) -> str:
    """Of an optimizer: what comes out of the step, and the gradient that goes into it. A low bit of its state
    before the step is often rounded away, and then nothing is wrong."""
    if module != OPTIMIZER:
        return "*"
    return {Target.OPTIMIZER: "[0-9]*", Target.INPUT: "gradient"}.get(target, "*")


def _double(dice: random.Random, world: int) -> Round:
    """Two ranks break differently in the same place."""
    ranks = dice.sample(range(world), 2)
    module, target = _where(dice)
    place = _place(module, target)
    faults = tuple(Fault(target, rank, module, place, bit=0, seed=dice.getrandbits(32)) for rank in ranks)
    return Round("double", faults, frozenset(ranks), frozenset((CAUSES[target],)))


def _tie(dice: random.Random, world: int) -> Round:
    """Half of the ranks break alike."""
    ranks = dice.sample(range(world), world // 2)
    module, target = _where(dice)
    seed = dice.getrandbits(32)
    faults = tuple(Fault(target, rank, module, _place(module, target), bit=0, seed=seed) for rank in ranks)
    cause = Cause.STATE_DIVERGENCE if target is Target.WEIGHTS else CAUSES[target]
    return Round("tie", faults, causes=frozenset((cause,)), tie=True)


def _shard(dice: random.Random, world: int) -> Round:
    """The optimizer's state of a shard, of which there are two: they differ, and nobody can be named."""
    fault = Fault(
        Target.OPTIMIZER,
        dice.randrange(world),
        "optimizer-shard *",
        "state exp_avg*",
        bit=30,
        seed=dice.getrandbits(32),
    )
    return Round("shard", (fault,), causes=frozenset((Cause.SDC_OPTIMIZER,)), tie=True)


EPISODE_ROUNDS = 12
"""A fault that strikes each of two runs with p = 0.5 stays hidden for so long once in 16 million times."""


def _intermittent(dice: random.Random, world: int, count: int) -> Iterator[Round]:
    for episode in range(count):
        rank = dice.randrange(world)
        module = BLOCKS.format(dice.randrange(LAYERS))
        fault = Fault(Target.OUTPUT, rank, module, bit=0, chance=0.5, seed=dice.getrandbits(32))
        for _ in range(EPISODE_ROUNDS):
            yield Round(
                "intermittent",
                (fault,),
                frozenset((rank,)),
                frozenset((Cause.SDC_OUTPUT,)),
                episode=episode,
            )


SLOW_ROUNDS = 6


def slow(layout: str, seed: int) -> list[Round]:
    """Rounds in which one rank takes longer for one block."""
    dice = random.Random(f"slow {layout} {seed}")
    rank = dice.randrange(WORLDS[layout])
    fault = Fault(Target.TIME, rank, BLOCKS.format(0))
    named = frozenset((rank,)), frozenset((Cause.COMPUTE_STRAGGLER,))
    return [Round("straggler", (fault,), *named) for _ in range(SLOW_ROUNDS)]


def _with(fault: Fault, **changes: object) -> Fault:
    return replace(fault, **changes)  # type: ignore[arg-type]
