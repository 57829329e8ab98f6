"""Replay rounds of a job on several nodes: when their results have to be exchanged, and which.

While tallies agree nothing but tallies travels. A dispute raises the alarm of the exchange, and the reports
then carry the results of the disputed rounds, the newest few, and of no others. A round is disputed because
tallies differ, or because somebody looks slow in it. Ranks that a verdict names already are no news: they do
not keep the agents exchanging for ever. A round that is decided here, by its deadline at the latest, is
disputed no more.

An agent tells its results of every round that any other tells, until the alarm is over. So whoever disputes a
round gets all results of it, whether the tallies have reached everybody or not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.replay import ReplayResult, RoundKey
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.slowness import Series, series_of
from scoutd.agent.tally import Runs, Tallies

MOST_DISPUTES: Final = 8
MOST_TOLD: Final = 32
"""Rounds in one report; those of an alarm that never ends must not fill it."""


KEPT: Final = 8
"""Rounds of a recipe: those of a suspicion of slowness, and some of which not every agent has heard."""
MOST_RECIPES: Final = 1024


class OwnResults:
    """The newest results of this node's ranks, also after their files have forgotten them: three rounds of a
    recipe may take an hour."""

    def __init__(self) -> None:
        self._series: Final[OrderedDict[Series, dict[RoundKey, dict[int, ReplayResult]]]] = OrderedDict()

    def add(self, rank: int, result: ReplayResult) -> None:
        series = series_of(result.round)
        rounds = self._series.setdefault(series, {})
        self._series.move_to_end(series)
        rounds.setdefault(result.round, {})[rank] = result
        while len(rounds) > KEPT:
            del rounds[next(iter(rounds))]
        while len(self._series) > MOST_RECIPES:
            self._series.popitem(last=False)

    def of(self, at: RoundKey) -> dict[int, ReplayResult]:
        """By rank; empty for a round that is not remembered."""
        rounds = self._series.get(series_of(at))
        return rounds.get(at, {}) if rounds is not None else {}


class Disputes:
    """``rounds``: those whose results are wanted now."""

    def __init__(self) -> None:
        self.rounds: tuple[RoundKey, ...] = ()
        self._seen = -1
        self._own: Final = OwnResults()
        self._asked: frozenset[RoundKey] = frozenset()
        self._told: OrderedDict[RoundKey, dict[int, ReplayResult]] = OrderedDict()

    def hear(self, reports: Iterable[NodeReport], watch: ReplayWatch, now_ns: int) -> None:
        """What all nodes tell now; before the core reads it."""
        self._asked = frozenset(
            result.round for report in reports for rank in report.replayed for result in rank.replays
        )
        if self._asked:
            watch.join(self._asked, now_ns)

    def look(
        self, report: NodeReport, tallies: Tallies, watch: ReplayWatch, alarmed: bool, now_ns: int
    ) -> None:
        """This node's own results are in the tallies; what they and others say is known. ``alarmed``: the
        agents exchange evidence now."""
        for rank in report.ranks:
            sizes = {(r.recipe, r.group): r.peers for r in rank.recipes} if rank.replays else {}
            for result in rank.replays:
                if tallies.add(rank.rank, result, sizes.get((result.recipe, result.group), 0)):
                    self._own.add(rank.rank, result)
        if not alarmed:
            self._told.clear()
            self._asked = frozenset()
        if tallies.news != self._seen or self.rounds or watch.wanted:
            self._seen = tallies.news
            self.rounds = (*self._disputed(tallies, watch, now_ns)[-MOST_DISPUTES:], *watch.wanted)
        for at in (*self.rounds, *sorted(self._asked - self._told.keys())):
            if results := self._own.of(at):
                self._told[at] = results
        while len(self._told) > MOST_TOLD:
            self._told.popitem(last=False)

    def _disputed(self, tallies: Tallies, watch: ReplayWatch, now_ns: int) -> list[RoundKey]:
        """Rounds whose tallies differ; what the others say is taken note of."""
        blamed = watch.blamed
        found = []
        for tally in tallies.all():
            if watch.rounds.is_closed(tally.at):
                continue
            idle = not tally.disputed or tally.recipe in watch.aside or _all_in(tally.minority(), blamed)
            if not idle:
                found.append(tally.at)
            elif tally.complete:
                watch.hear(tally, now_ns)
        return found

    def words(self, report: NodeReport) -> NodeReport:
        """The report as others should have it: with the results of disputed rounds, and of no others."""
        if not any(rank.replays or rank.recipes for rank in report.ranks):
            return report
        recipes = {at.recipe for at in self._told}

        def trimmed(rank: RankReport) -> RankReport:
            results = tuple(told[rank.rank] for told in self._told.values() if rank.rank in told)
            views = tuple(view for view in rank.recipes if view.recipe in recipes)
            return replace(rank, recipes=views, replays=results, replay_cost=None)

        return replace(report, ranks=tuple(map(trimmed, report.ranks)))


def _all_in(runs: Runs, ranks: frozenset[int]) -> bool:
    return all(rank in ranks for first, size in runs for rank in range(first, first + size))
