"""What the simulated ranks run: a grid, its process groups, and one step as a list of operations.

Operations are those of the property tests' dumb model (sync, start, await, compute). A grid has one or more
axes (tp × fsdp, pp × dp, …); along every axis lie the groups of that axis, and one group spans the world.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, product
from math import prod

from scoutd.agent.evidence import Members
from tests.property.program import Op

AXES = (("tp", "fsdp"), ("pp", "dp"), ("dp", "tp"), ("dp", "fsdp", "tp"))


@dataclass(frozen=True)
class Group:
    identity: int
    name: str
    ranks: tuple[int, ...]
    members: Members


class Grid:
    """``group_of[rank][axis]`` is the group in which the rank runs operations of that axis."""

    def __init__(self, shape: Mapping[str, int]) -> None:
        self.shape = dict(shape)
        self.world_size = prod(self.shape.values())
        self.groups: list[Group] = []
        self.group_of: list[dict[str, Group]] = [{} for _ in range(self.world_size)]
        identities = count(1)
        axes = list(self.shape)
        self._add("world", next(identities), tuple(range(self.world_size)))
        for k, axis in enumerate(axes):
            others = [range(self.shape[a]) for a in axes if a != axis]
            for fixed in product(*others):
                ranks = tuple(self._rank((*fixed[:k], at, *fixed[k:])) for at in range(self.shape[axis]))
                self._add(axis, next(identities), ranks)

    def _rank(self, coordinate: tuple[int, ...]) -> int:
        rank = 0
        for at, size in zip(coordinate, self.shape.values(), strict=True):
            rank = rank * size + at
        return rank

    def _add(self, axis: str, identity: int, ranks: tuple[int, ...]) -> None:
        stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
        group = Group(identity, f"{axis}{identity}", ranks, Members(((ranks[0], stride, len(ranks)),)))
        self.groups.append(group)
        for rank in ranks:
            self.group_of[rank][axis] = group


def random_grid(rng: random.Random, world_size: int) -> Grid:
    """Axes whose sizes multiply to the world size; an axis of size 1 has groups of one."""
    names = rng.choice(AXES)
    left = world_size
    shape: dict[str, int] = {}
    for name in names[:-1]:
        size = rng.choice([d for d in range(1, left + 1) if left % d == 0])
        shape[name], left = size, left // size
    shape[names[-1]] = left
    return Grid(shape)


def random_step(rng: random.Random, grid: Grid) -> list[Op]:
    """One step: computes, synchronous collectives, prefetched ones; it ends with something that binds all."""
    axes = ["world", *grid.shape]
    ops: list[Op] = []
    started: list[str] = []
    for _ in range(rng.randint(3, 9)):
        kind = rng.choice(("compute", "sync", "start", "await"))
        if kind == "await" and started:
            ops.append(Op("await", started.pop(0)))
        elif kind == "start":
            axis = rng.choice(axes)
            started.append(axis)
            ops.append(Op("start", axis))
        elif kind == "sync":
            ops.append(Op("sync", rng.choice(axes)))
        else:
            ops.append(Op("compute"))
    rng.shuffle(started)
    ops += [Op("await", axis) for axis in started]
    return [Op("compute"), *ops, Op("compute"), Op("sync", "world")]
