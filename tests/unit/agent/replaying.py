"""Replay results of a job in words: ``Replaying(8)`` is a job of eight healthy ranks."""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.replay import Part, RecipeKind, RecipeMode, RecipeState, RecipeView, ReplayResult
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import State, Verdict
from tests.unit.agent.job import Job, ns, verdicts

RECIPE = 0xB10C
GROUP = 0x77
SIGNED = (Part.INPUT, Part.PARAMETER, Part.OUTPUT, Part.INPUT_GRADIENT, Part.PARAMETER_GRADIENT)


def view(recipe: int = RECIPE, peers: int = 8, name: str = "blocks.1 (Block)") -> RecipeView:
    return RecipeView(recipe, GROUP, peers, RecipeKind.BLOCK, RecipeMode.SEEDED, RecipeState.READY, name)


def result(step: int, recipe: int = RECIPE, **fields: object) -> ReplayResult:
    """What a healthy rank tells: all parts of a block, equal on all ranks."""
    signatures = tuple(hash((step, recipe, part)) & 0xFFFF if part in SIGNED else None for part in Part)
    made = ReplayResult(recipe, GROUP, step, 1, step, signatures, module_ns=5_000_000)
    return replace(made, **fields)  # type: ignore[arg-type]


def broken(healthy: ReplayResult, *parts: Part, by: int = 1) -> ReplayResult:
    """The same replay with other values in these parts."""
    signatures = tuple(
        (s or 0) ^ (by << 20) if part in parts else s
        for part, s in zip(Part, healthy.signatures, strict=True)
    )
    return replace(healthy, signatures=signatures)


def restless(healthy: ReplayResult, *parts: Part) -> ReplayResult:
    return replace(healthy, differing=sum(1 << part for part in parts))


class Replaying(Job):
    """``replays`` lets all ranks tell one round; ``sick`` ranks tell something else."""

    def __init__(self, world_size: int, settings: Settings | None = None, peers: int = 0) -> None:
        super().__init__(world_size, settings)
        self.peers = peers or world_size

    def replays(
        self, step: int, sick: dict[int, ReplayResult] | None = None, missing: tuple[int, ...] = ()
    ) -> list[Verdict]:
        """The verdicts reported when the results of this round have come."""
        for rank in self.ranks:
            told = () if rank in missing else ((sick or {}).get(rank, result(step)),)
            self.change(rank, recipes=(view(peers=self.peers),), replays=told)
        self.now += ns(0.25)
        return verdicts(self.observe())

    def confirmed(self) -> list[Verdict]:
        return [v for v in self.core.verdicts if v.state is State.CONFIRMED]
