"""When which recipe is replayed: the same on all peers, from numbers that all have.

Every I steps V recipes are due, in turn: N recipes are through after I·N/V steps (SCOUT §3). A requested
replay begins at a step that the group's first rank has chosen and told, far enough ahead that all know it in
time (``channel``): peers that took it up at different steps would compare different parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

REQUESTED: Final = 1 << 63
"""This bit marks the keys of requested replays."""

AHEAD_S: Final = 2.0
"""An agent writes a request within a second of another, a rank looks twice a second, the store takes ms."""

MIN_AHEAD: Final = 3
MAX_AHEAD: Final = 100_000


class Due(NamedTuple):
    """One replay to be made: its key, and the recipe's place in the rotation."""

    key: int
    place: int


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
    first = (step // every - 1) * variants
    return [Due(step, (first + k) % recipes) for k in range(min(variants, recipes))]


def start_of(step: int, step_s: float) -> int:
    """The step at which a request that is known now can begin on all ranks."""
    ahead = math.ceil(AHEAD_S / step_s) if step_s > 0 else MIN_AHEAD
    return step + max(MIN_AHEAD, min(MAX_AHEAD, ahead))


def order_of(request: int, start: int, wanted: Sequence[int], times: int, variants: int) -> Order:
    """``wanted`` recipes, ``times`` over."""
    return Order(request, start, tuple(wanted) * max(1, times), max(1, variants))
