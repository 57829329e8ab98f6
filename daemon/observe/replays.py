"""What a rank's file says of replays, read only when it has moved.

The small REPLAY record is read in every pass; it counts replays and requests. Only when it has moved, and in
the pass after that, the ring of results and the table of recipes are read, 72 KiB. Results become evidence
with their age; they are translated again when the ring has moved, or once a second while they are young
enough to belong to a round that somebody may still wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from scoutd.agent.replay import (
    Part,
    RecipeKind,
    RecipeMode,
    RecipeState,
    RecipeView,
    ReplayCost,
    ReplayResult,
)
from scoutd.daemon.observe.table import Table
from scoutd.proto import replay, shm

KINDS: Final[Mapping[int, RecipeKind]] = {int(k): RecipeKind[k.name] for k in replay.RecipeKind}
MODES: Final[Mapping[int, RecipeMode]] = {int(m): RecipeMode[m.name] for m in replay.RecipeMode}
STATES: Final[Mapping[int, RecipeState]] = {int(s): RecipeState[s.name] for s in replay.RecipeState}

OLDEST_NS: Final = 120_000_000_000
"""Rounds are long closed then."""

AGAIN_NS: Final = 1_000_000_000
EVERY: Final = 8
"""Passes between two looks at everything, for recipes that changed without a replay."""


class ReplayTables:
    """The replay sections of one file. ``read`` brings tables up to date."""

    def __init__(self, read: Callable[[list[Table[Any]]], None]) -> None:
        self._read: Final = read
        self._state: Final = Table(shm.REPLAY)
        self._recipes: Final = Table(shm.RECIPES)
        self._replays: Final = Table(shm.REPLAYS)
        self._passes = 0
        self._seen: replay.ReplayState | None = None
        self._again = False
        self._results: tuple[ReplayResult, ...] = ()
        self._results_ns = 0
        self.recipes: tuple[RecipeView, ...] = ()

    def refresh(self, whole: bool) -> None:
        """The tables say what the file says, as far as it can have moved."""
        self._read([self._state])
        state = self._state.first()
        moved = state is not None and not _same(state, self._seen)
        if moved or self._again or (state is not None and self._passes % EVERY == 0):
            self._read([self._recipes, self._replays])
            self.recipes = tuple(map(_recipe, self._recipes.records.values()))
            self._results_ns = 0
        elif whole and state is not None:
            self._read([self._recipes, self._replays])
        self._again = moved
        self._seen = state
        self._passes += 1

    def results(self, now_ns: int) -> tuple[ReplayResult, ...]:
        """The results of the last two minutes, oldest first; ages are up to a second too young."""
        if now_ns - self._results_ns >= AGAIN_NS and self._replays.records:
            self._results = results(self._replays.records.values(), now_ns)
            self._results_ns = now_ns
        return self._results

    @property
    def cost(self) -> ReplayCost | None:
        """None where the rank replays nothing and never did."""
        s = self._state.first()
        if s is None:
            return None
        return ReplayCost(
            s.every, s.variants, bool(s.faults), s.steps, s.replays, s.step_ns, s.cost_ns, s.request
        )


def _same(state: replay.ReplayState, before: replay.ReplayState | None) -> bool:
    return before is not None and (state.replays, state.request) == (before.replays, before.request)


def results(records: Iterable[replay.Replay], now_ns: int) -> tuple[ReplayResult, ...]:
    young = (r for r in records if now_ns - r.at_ns < OLDEST_NS)
    return tuple(_result(r, now_ns) for r in sorted(young, key=lambda r: (r.at_ns, r.recipe)))


def _result(r: replay.Replay, now_ns: int) -> ReplayResult:
    values = (r.input, r.parameter, r.output, r.input_gradient, r.parameter_gradient, r.optimizer)
    return ReplayResult(
        recipe=r.recipe,
        group=r.group,
        key=r.key,
        scheme=r.scheme,
        step=r.step,
        signatures=tuple(v if r.signed >> part & 1 else None for part, v in zip(Part, values, strict=True)),
        differing=r.differing,
        nonfinite=r.nonfinite,
        module_ns=r.module_ns,
        gather_ns=None if r.gather_ns == shm.UNKNOWN_U64 else r.gather_ns,
        age_ns=max(0, now_ns - r.at_ns),
    )


def _recipe(r: replay.Recipe) -> RecipeView:
    """Numbers that this build does not know are a block that is still being learnt."""
    return RecipeView(
        recipe=r.recipe,
        group=r.group,
        peers=r.peers,
        kind=KINDS.get(r.kind, RecipeKind.BLOCK),
        mode=MODES.get(r.mode, RecipeMode.SEEDED),
        state=STATES.get(r.state, RecipeState.LEARNING),
        name=r.name,
        reason=r.reason,
        replays=r.replays,
        cost_ns=r.cost_ns,
    )
