"""Where the values of a replay can be looked at or changed, for drills and tests.

``scoutd.shim.faults`` puts its injections here. Without one, every call is a test of an empty list. A change
made here touches the replay's own copies, never the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from scoutd.proto.replay import Part, RecipeKind


@dataclass(frozen=True)
class Context:
    """Which run of which replay. ``run``: 1 or 2; 0 is the rehearsal, whose results count for nothing.
    ``name`` is the recipe's ("blocks.3 (Block)")."""

    name: str
    kind: RecipeKind
    key: int
    step: int
    run: int


Passage = Callable[[Part, str, torch.Tensor, Context], torch.Tensor]
"""Given the part, the tensor's place in it ("linear.weight", "0") and the tensor, returns what the replay
goes on with: the same tensor, changed in place or not, or another of its shape and dtype."""

Pause = Callable[[Context], None]
"""Called inside the time that is measured, once per run: what it takes makes the replay slower."""

passages: Final[list[Passage]] = []
pauses: Final[list[Pause]] = []


enabled = False
"""Whether the fault kit is switched on; published, so that nobody takes a drill for a fault."""


def pass_through(part: Part, place: str, tensor: torch.Tensor, context: Context) -> torch.Tensor:
    """The tensor as the replay goes on with it."""
    for passage in passages:
        tensor = passage(part, place, tensor, context)
    return tensor


def pause(context: Context) -> None:
    for each in pauses:
        each(context)
