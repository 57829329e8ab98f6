"""When which recipe is replayed: the same on all peers, from numbers that all have.

Every I steps V recipes are due, in turn: N recipes are through after I·N/V steps (SCOUT §3). A requested
replay begins at a step that the group's first rank has chosen and told, far enough ahead that all know it in
time (``channel``): peers that took it up at different steps would compare different parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

REQUESTED: Final = 1 << 63
"""This bit marks the keys of requested replays."""

AHEAD_S: Final = 2.0
"""An agent writes a request within a second of another, a rank looks twice a second, the store takes ms."""

MIN_AHEAD: Final = 3
MAX_AHEAD: Final = 100_000


class Due(NamedTuple):
    """One replay to be made: its key, the recipe's place in the rotation, and how many times the rotation was
    through before."""

    key: int
    place: int
    cycle: int = 0


class InputMode(str, Enum):
    """Where the inputs of scheduled replays come from. BOTH: from a counter and from the group's first rank,
    one rotation after the other. BROADCAST: from the first rank, after a first rotation from a counter."""

    SEEDED = "seeded"
    BROADCAST = "broadcast"
    BOTH = "both"

    def is_broadcast(self, due: Due) -> bool:
        """Whether the first rank's input is wanted for this one."""
        if self is InputMode.SEEDED or due.key & REQUESTED or not due.cycle:
            return False
        return self is InputMode.BROADCAST or due.cycle % 2 == 1


@dataclass(frozen=True)
class Order:
    """A request that will be carried out from step ``start`` on: these recipes in this order, ``at_once`` of
    them at a step."""

    request: int
    start: int
    indices: tuple[int, ...]
    at_once: int

    @property
    def end(self) -> int:
        """The first step at which nothing is left to do."""
        return self.start + math.ceil(len(self.indices) / max(1, self.at_once))

    def due(self, step: int) -> list[Due]:
        first = (step - self.start) * self.at_once
        if first < 0:
            return []
        return [Due(REQUESTED | self.request, k) for k in self.indices[first : first + self.at_once]]


def scheduled(step: int, every: int, variants: int, recipes: int) -> list[Due]:
    """What is due after ``step``; nothing where ``every`` is 0."""
    if every <= 0 or step <= 0 or step % every or not recipes:
        return []
    at_once = min(variants, recipes)
    first = (step // every - 1) * at_once
    return [Due(step, place % recipes, place // recipes) for place in range(first, first + at_once)]


def start_of(step: int, step_s: float, ahead_s: float = AHEAD_S) -> int:
    """The step at which what is known now can begin on all ranks, when they know it ``ahead_s`` later."""
    ahead = math.ceil(ahead_s / step_s) if step_s > 0 else MIN_AHEAD
    return step + max(MIN_AHEAD, min(MAX_AHEAD, ahead))


def order_of(request: int, start: int, wanted: Sequence[int], times: int, variants: int) -> Order:
    """``wanted`` recipes, ``times`` over."""
    return Order(request, start, tuple(wanted) * max(1, times), max(1, variants))
