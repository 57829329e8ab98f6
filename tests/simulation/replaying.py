"""Replays in virtual time: every rank replays one recipe now and then, equal work in times that jitter.

All ranks are one peer group. A round is there a little later on one rank than on another, as steps are.
``slow`` ranks take so many times as long, ``wrong`` ones give another output from some round on; times follow
from the seed, the round and the rank alone.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from scoutd.agent.evidence import RankReport
from scoutd.agent.replay import RecipeKind, RecipeMode, RecipeState, RecipeView, ReplayResult
from tests.simulation.timeline import ns

RECIPE, GROUP = 0xB10C, 0x77
SIGNED = (11, 12, 13, 14, 15, None)
WRONG = (11, 12, 99, 14, 15, None)
KEPT_NS = ns(120)
STEP_S = 0.1
MODULE_NS = 5_000_000


@dataclass
class Replays:
    """Rounds every ``every_s`` from the beginning of the world on, ``rounds`` in all."""

    seed: int
    ranks: int
    jitter: float = 0.05
    every_s: float = 5.0
    rounds: int = 1000
    slow: Mapping[int, float] = field(default_factory=dict)
    wrong: Mapping[int, int] = field(default_factory=dict)
    _results: dict[tuple[int, int], tuple[int, ReplayResult]] = field(default_factory=dict)

    def onto(self, report: RankReport, now_ns: int) -> RankReport:
        """What the rank's file would say beside all else."""
        view = RecipeView(
            RECIPE,
            GROUP,
            self.ranks,
            RecipeKind.BLOCK,
            RecipeMode.SEEDED,
            RecipeState.READY,
            "blocks.1 (Block)",
        )
        every = ns(self.every_s)
        first, last = max(1, (now_ns - KEPT_NS) // every), min(self.rounds, now_ns // every)
        told = (self._result(report.rank, number, now_ns) for number in range(first, last + 1))
        return replace(report, recipes=(view,), replays=tuple(each for each in told if each is not None))

    def _result(self, rank: int, number: int, now_ns: int) -> ReplayResult | None:
        made_ns, result = self._made(rank, number)
        return replace(result, age_ns=now_ns - made_ns) if now_ns >= made_ns else None

    def _made(self, rank: int, number: int) -> tuple[int, ReplayResult]:
        known = self._results.get((rank, number))
        if known is None:
            dice = random.Random(f"{self.seed} {number} {rank}")
            made_ns = number * ns(self.every_s) + ns(dice.uniform(0, STEP_S))
            time = MODULE_NS * max(0.2, dice.gauss(1, self.jitter)) * self.slow.get(rank, 1.0)
            step = 10 * number
            signed = WRONG if number >= self.wrong.get(rank, number + 1) else SIGNED
            result = ReplayResult(RECIPE, GROUP, step, 1, step, signed, module_ns=int(time))
            known = self._results[rank, number] = (made_ns, result)
        return known
