"""One replay: the same run twice, compared with itself.

Before its first replay a recipe is rehearsed, with another seed and under a mode that refuses collectives.
The rehearsal decides whether half of the batch will do, finds buffers that the forward writes to, warms up
what a first run would pay for, and tells whether the shapes of what comes out depend on values: then the two
seeds give different ones, and peers could not be compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import torch

from scoutd.proto import replay, shm
from scoutd.proto.replay import Part, RecipeKind
from scoutd.shim.replay import seams
from scoutd.shim.replay.blockrun import Outcome, Work, run_block
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.seeds import Source
from scoutd.shim.replay.slicerun import run_optimizer

_REHEARSAL: Final = "rehearsal"
_UNFIT: Final = (Refusal, RuntimeError, ValueError, TypeError, IndexError, AssertionError, ArithmeticError)
"""What a module may raise because half of a batch is none."""

Gathered = Mapping[str, torch.Tensor] | None


def replayed(recipe: Recipe, key: int, step: int, gathered: Gathered = None) -> replay.Replay:
    """The recipe was run twice, and this is what it gave.

    Raises:
        Refusal: it cannot be replayed. Whatever the trainer's own code raises comes through, too.
    """
    if not recipe.rehearsed:
        _rehearse(recipe, step, gathered)
    first = _run(recipe, key, step, 1, gathered)
    second = _run(recipe, key, step, 2, gathered)
    return _record(recipe, key, step, first, second)


def _rehearse(recipe: Recipe, step: int, gathered: Gathered) -> None:
    try:
        outcome = _run(recipe, 0, step, 0, gathered)
    except torch.OutOfMemoryError:
        raise
    except _UNFIT:
        if not recipe.unhalve():
            raise
        outcome = _run(recipe, 0, step, 0, gathered)
    recipe.running = outcome.changed
    recipe.form = outcome.form
    recipe.rehearsed = True


def _run(recipe: Recipe, key: int, step: int, number: int, gathered: Gathered) -> Outcome:
    """Run 1 or 2, or the rehearsal (0)."""
    subject = recipe.subject()
    if subject is None:
        raise Refusal("it is gone")
    context = seams.Context(recipe.name, recipe.kind, key, step, number)
    source = Source(recipe.recipe, key if number else _rehearsal_key(key))
    if recipe.kind is RecipeKind.OPTIMIZER:
        return run_optimizer(subject, key, context, source, recipe.shard)
    if recipe.call is None:
        raise Refusal("its call is not known")
    work = Work(subject, recipe.call, gathered, recipe.running)
    outcome = run_block(work, context, source)
    if recipe.rehearsed and not recipe.broadcast and outcome.form != recipe.form:
        raise Refusal("the shape of its output depends on values")
    return outcome


def _rehearsal_key(key: int) -> int:
    return key ^ (1 << 62)


def _record(recipe: Recipe, key: int, step: int, first: Outcome, second: Outcome) -> replay.Replay:
    def value(part: Part) -> int:
        return first.signatures.get(part, 0)

    differing = {p for p in first.signatures if first.signatures[p] != second.signatures.get(p)}
    if recipe.captured not in (None, first.signatures.get(Part.INPUT, recipe.captured)):
        differing.add(Part.INPUT)  # all peers may have got what this rank had spoilt before it was sent
    return replay.Replay(
        key=key,
        recipe=recipe.recipe,
        group=recipe.peers.group if recipe.peers is not None else 0,
        step=step,
        at_ns=time.monotonic_ns(),
        scheme=first.scheme,
        signed=_bits(set(first.signatures)),
        differing=_bits(differing),
        nonfinite=_bits(first.nonfinite),
        input=value(Part.INPUT),
        parameter=value(Part.PARAMETER),
        output=value(Part.OUTPUT),
        input_gradient=value(Part.INPUT_GRADIENT),
        parameter_gradient=value(Part.PARAMETER_GRADIENT),
        optimizer=value(Part.OPTIMIZER),
        module_ns=min(first.module_ns, second.module_ns),
        gather_ns=shm.UNKNOWN_U64,
    )


def _bits(parts: set[Part]) -> int:
    return sum(1 << int(part) for part in parts)
