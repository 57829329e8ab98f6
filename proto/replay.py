"""What shared memory says of replays: the recipes, their results, their cost, and requests (design §6).

The shim of a rank writes ``ReplayState``, ``Recipe`` and ``Replay``; the agent writes ``Request``. The
sections that hold them are in ``scoutd.proto.shm``. A recipe's and a replay's identities are made so that
peers have equal ones without talking to each other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class RecipeKind(IntEnum):
    """What a recipe runs again. OPTIMIZER: one step on a slice of cloned optimizer state."""

    EMBEDDING = 0
    BLOCK = 1
    HEAD = 2
    OPTIMIZER = 3


class RecipeMode(IntEnum):
    """Where a replay's input comes from (design §6). SEEDED: made from a counter on every rank, no traffic.
    TEMPLATE: as SEEDED, with rank 0's arguments where they are not floating point. BROADCAST: one peer's."""

    SEEDED = 0
    TEMPLATE = 1
    BROADCAST = 2


class RecipeState(IntEnum):
    """LEARNING: waits for a call of the module to learn from. DISABLED: will not run, ``reason`` says why."""

    LEARNING = 0
    READY = 1
    DISABLED = 2


class Part(IntEnum):
    """Bit numbers of what a replay signs: in ``Replay.signed``, ``differing`` and ``nonfinite``."""

    INPUT = 0
    PARAMETER = 1
    OUTPUT = 2
    INPUT_GRADIENT = 3
    PARAMETER_GRADIENT = 4
    OPTIMIZER = 5


class ReplayState(NamedTuple):
    """``every``: steps between replays, 0 off. ``step_ns``: time in all steps since attach, replays
    included; ``cost_ns``: time that replays took of it. ``faults``: 1 while the fault kit is enabled."""

    every: int
    variants: int
    faults: int
    steps: int
    replays: int
    step_ns: int
    cost_ns: int
    request: int
    """The last request that was carried out or refused."""


class Recipe(NamedTuple):
    """``recipe`` is equal on all peers: a hash of kind, name and the shapes it was learnt with. ``group``
    identifies the peer group, ``peers`` is its size; 0: nobody to compare with."""

    recipe: int
    group: int
    replays: int
    cost_ns: int
    peers: int
    kind: int
    mode: int
    state: int
    name: str
    reason: str


class Replay(NamedTuple):
    """One replay, run twice. ``key`` is equal on all peers that run the same replay: the step for scheduled
    ones, the request's id with the highest bit set for others. Signatures (H_64 of ``scheme``) are of the
    first run and mean something where ``signed`` has their bit; ``differing``: the second run gave another
    value; ``nonfinite``: NaN or infinity inside. ``module_ns`` is the shorter of the two runs; ``gather_ns``
    is UNKNOWN_U64 where no parameter had to be gathered."""

    key: int
    recipe: int
    group: int
    step: int
    at_ns: int
    scheme: int
    signed: int
    differing: int
    nonfinite: int
    input: int
    parameter: int
    output: int
    input_gradient: int
    parameter_gradient: int
    optimizer: int
    module_ns: int
    gather_ns: int


class Request(NamedTuple):
    """Replay ``recipe`` (0: all) ``variants`` times with key ``request``, unless it is later than
    ``expires_ns``."""

    request: int
    recipe: int
    expires_ns: int
    variants: int
