"""Replays as evidence: which recipes a rank runs again, and what came out of them (design §6).

A *recipe* is a piece of work that all members of a peer group can do alike: a block, the optimizer on a
slice. A *replay* is one run of a recipe, made twice, and signs its parts. Two replays are comparable if
recipe, group, key and scheme are equal; then equal work has equal signatures, on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

REQUESTED: Final = 1 << 63
"""This bit marks keys of replays that somebody asked for; other keys are steps."""


class RecipeKind(str, Enum):
    EMBEDDING = "EMBEDDING"
    BLOCK = "BLOCK"
    HEAD = "HEAD"
    OPTIMIZER = "OPTIMIZER"


class RecipeMode(str, Enum):
    SEEDED = "SEEDED"
    TEMPLATE = "TEMPLATE"
    BROADCAST = "BROADCAST"


class RecipeState(str, Enum):
    """LEARNING: waits for a call of the module to learn from. DISABLED: ``reason`` says why."""

    LEARNING = "LEARNING"
    READY = "READY"
    DISABLED = "DISABLED"


class Part(IntEnum):
    """What a replay signs, in the order in which one depends on the other: the first part that differs
    explains those behind it."""

    INPUT = 0
    PARAMETER = 1
    OUTPUT = 2
    INPUT_GRADIENT = 3
    PARAMETER_GRADIENT = 4
    OPTIMIZER = 5


@dataclass(frozen=True, slots=True)
class RecipeView:
    """A recipe as one rank has it. ``recipe`` is equal on all peers. ``group`` identifies the peer group,
    which has ``peers`` members; with fewer than two there is nobody to compare with."""

    recipe: int
    group: int
    peers: int
    kind: RecipeKind
    mode: RecipeMode
    state: RecipeState
    name: str
    reason: str = ""
    replays: int = 0
    cost_ns: int = 0


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One replay of one rank. ``signatures`` by Part, None where the replay has no such part. ``differing``
    and ``nonfinite`` have a bit per Part: the second run gave another value; NaN or infinity inside.
    ``gather_ns`` is None where no parameter had to be gathered."""

    recipe: int
    group: int
    key: int
    scheme: int
    step: int
    signatures: tuple[int | None, ...]
    differing: int = 0
    nonfinite: int = 0
    module_ns: int = 0
    gather_ns: int | None = None
    age_ns: int = 0

    @property
    def round(self) -> RoundKey:
        return RoundKey(self.group, self.recipe, self.key, self.scheme)

    def signature(self, part: Part) -> int | None:
        return self.signatures[part] if part < len(self.signatures) else None

    def restless(self, part: Part) -> bool:
        """The rank disagreed with itself about this part."""
        return bool(self.differing >> part & 1)

    def finite(self, part: Part) -> bool:
        return not self.nonfinite >> part & 1


@dataclass(frozen=True, slots=True, order=True)
class RoundKey:
    """Results with an equal one are comparable."""

    group: int
    recipe: int
    key: int
    scheme: int


@dataclass(frozen=True, slots=True)
class ReplayCost:
    """How often a rank replays and what it has cost. ``every``: steps between replays, 0: on request only.
    ``faults``: the kit that injects faults is switched on. Times since attach; ``step_ns`` includes
    ``cost_ns``. ``request``: the last request that was carried out or refused. Not exchanged."""

    every: int
    variants: int
    faults: bool
    steps: int
    replays: int
    step_ns: int
    cost_ns: int
    request: int = 0

    @property
    def share(self) -> float:
        """Of all step time, what replays took; 0 before the first step."""
        return self.cost_ns / self.step_ns if self.step_ns else 0.0
