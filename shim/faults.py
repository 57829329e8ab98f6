"""Faults on purpose, for tests and drills: does the alarm ring, and does it name the right rank?

Nothing happens unless the environment says ``SCOUTD_FAULTS=1`` or the program calls ``enable``; while the kit
is on, shared memory, ``scoutd status`` and the metrics say so. A *fault* is a bit flip, a NaN or a delay:

- where: ``target`` (weights, activations, gradients, optimizer state, …), ``rank``, ``module`` and ``place``
  by pattern, ``first`` to ``last`` step;
- when: always, with a ``chance`` per run (intermittent), or ``shots`` times (one-shot);
- what: ``bit`` of one element, which follows from ``seed`` and the place; ``nan``; ``delay_s``.

``inject`` puts a fault into replays only: what is broken are the replay's own copies, and the training is
not touched. ``faultslive`` breaks the live model, as a drill on a job that may be lost. Faults for a script
that is not to be edited come from ``SCOUTD_FAULT``, several separated by ``;``::

    SCOUTD_FAULTS=1 SCOUTD_FAULT="target=output rank=2 module=blocks.1* first=50 chance=0.5"
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, fields
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final

import torch
import torch.distributed as dist

from scoutd.proto.replay import Part
from scoutd.shim.bitflip import flip, spoil
from scoutd.shim.replay import seams

SWITCH: Final = "SCOUTD_FAULTS"
SPECIFICATION: Final = "SCOUTD_FAULT"


class Target(str, Enum):
    """What breaks. WEIGHTS and the gradients are those of the replayed block; TIME is its duration."""

    INPUT = "input"
    WEIGHTS = "weights"
    OUTPUT = "output"
    INPUT_GRADIENTS = "input_gradients"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    TIME = "time"


PARTS: Final = {
    Part.INPUT: Target.INPUT,
    Part.PARAMETER: Target.WEIGHTS,
    Part.OUTPUT: Target.OUTPUT,
    Part.INPUT_GRADIENT: Target.INPUT_GRADIENTS,
    Part.PARAMETER_GRADIENT: Target.GRADIENTS,
    Part.OPTIMIZER: Target.OPTIMIZER,
}


@dataclass(frozen=True)
class Fault:
    """``rank`` -1: every rank. ``module`` and ``place`` are patterns with ``*``; of several tensors that
    match in one run, the first one breaks. ``bit`` is taken modulo the bits of the element."""

    target: Target = Target.OUTPUT
    rank: int = -1
    module: str = "*"
    place: str = "*"
    first: int = 0
    last: int = 1 << 62
    bit: int = 0
    nan: bool = False
    delay_s: float = 0.0
    chance: float = 1.0
    shots: int = 1 << 62
    seed: int = 0

    def concerns(self, target: Target, module: str, step: int) -> bool:
        """The fault is here, as far as these tell."""
        return (
            self.target is target
            and self.rank in (-1, _rank())
            and self.first <= step <= self.last
            and fnmatchcase(module, self.module)
        )

    def number(self, *of: object) -> int:
        """A number that follows from the seed and what it is asked for, alike on all machines."""
        text = "|".join(map(str, (self.seed, self.target.value, *of)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

    def strikes(self, *when: object) -> bool:
        """It happens this time."""
        return self.number("chance", *when) < self.chance * (1 << 64)

    def corrupt(self, tensor: torch.Tensor, place: str) -> torch.Tensor:
        element = self.number("element", place)
        return spoil(tensor, element) if self.nan else flip(tensor, element, self.bit)


class NotEnabled(RuntimeError):
    """Faults are injected only where somebody has said that they may be."""


@dataclass
class _Armed:
    """A fault in replays. ``struck``: the run in which it struck last; ``shots`` that are left."""

    fault: Fault
    shots: int
    struck: tuple[object, ...] = ()


_on = False
_armed: list[_Armed] = []


def enabled() -> bool:
    """The kit is on in this process."""
    return _on or os.environ.get(SWITCH) == "1"


def enable() -> None:
    """Faults may be injected from now on."""
    global _on
    _on = seams.enabled = True


def disable() -> None:
    """No fault is armed, and the kit is off unless the environment says otherwise."""
    global _on
    clear()
    _on = False
    seams.enabled = enabled()


def inject(fault: Fault) -> None:
    """Replays of this rank are broken as ``fault`` says, until ``clear``.

    Raises:
        NotEnabled: the kit is off.
    """
    if not enabled():
        raise NotEnabled(f"set {SWITCH}=1 or call faults.enable() first")
    if not _armed:
        seams.passages.append(_pass)
        seams.pauses.append(_pause)
    _armed.append(_Armed(fault, fault.shots))


def clear() -> None:
    """No fault is in replays any more."""
    _armed.clear()
    if _pass in seams.passages:
        seams.passages.remove(_pass)
        seams.pauses.remove(_pause)


def armed() -> tuple[Fault, ...]:
    return tuple(each.fault for each in _armed)


def from_environment() -> None:
    """The faults that ``SCOUTD_FAULT`` tells are armed; without the switch none is.

    Raises:
        ValueError: it cannot be read; the text says what.
    """
    clear()
    told = os.environ.get(SPECIFICATION, "")
    if enabled():
        seams.enabled = True
        for fault in map(parse, filter(str.strip, told.split(";"))):
            inject(fault)


def parse(text: str) -> Fault:
    """A fault from "target=output rank=2 bit=3". Raises ValueError for what is none."""
    known = {field.name for field in fields(Fault)}
    values: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or name not in known:
            raise ValueError(f"{word!r} is not one of {', '.join(sorted(known))} with a value")
        kind = type(getattr(Fault(), name))
        values[name] = value in ("1", "true") if kind is bool else kind(value)
    return Fault(**values)


def _pass(part: Part, place: str, tensor: torch.Tensor, context: seams.Context) -> torch.Tensor:
    for each in _armed:
        fault = each.fault
        run = (context.name, context.key, context.run)
        if not context.run or each.shots <= 0 or each.struck == run:
            continue
        if fault.concerns(PARTS[part], context.name, context.step) and fnmatchcase(place, fault.place):
            each.struck = run
            if fault.strikes(*run):
                each.shots -= 1
                tensor = fault.corrupt(tensor, place)
    return tensor


def _pause(context: seams.Context) -> None:
    for each in _armed:
        fault = each.fault
        if not context.run or each.shots <= 0:
            continue
        here = fault.concerns(Target.TIME, context.name, context.step)
        if here and fault.strikes(context.key, context.run):
            each.shots -= 1
            time.sleep(fault.delay_s)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0
