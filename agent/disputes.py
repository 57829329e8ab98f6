"""Replay rounds of a job on several nodes: when their results have to be exchanged, and which.

While tallies agree nothing but tallies travels. A dispute raises the alarm of the exchange, and the reports
then carry the results of the disputed rounds, the newest few, and of no others. Ranks that a verdict names
already are no news: they do not keep the agents exchanging for ever. A round that is decided here, by its
deadline at the latest, is disputed no more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.replay import RoundKey
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.tally import Runs, Tallies

MOST_DISPUTES: Final = 8


class Disputes:
    """``rounds``: those whose results are wanted now."""

    def __init__(self) -> None:
        self.rounds: tuple[RoundKey, ...] = ()
        self._seen = -1

    def look(self, report: NodeReport, tallies: Tallies, watch: ReplayWatch) -> None:
        """This node's own results are in the tallies; what they and others say is known."""
        for rank in report.ranks:
            sizes = {(r.recipe, r.group): r.peers for r in rank.recipes} if rank.replays else {}
            for result in rank.replays:
                tallies.add(rank.rank, result, sizes.get((result.recipe, result.group), 0))
        if tallies.news == self._seen and not self.rounds:
            return
        self._seen = tallies.news
        blamed = watch.blamed
        found = []
        for tally in tallies.all():
            if watch.rounds.is_closed(tally.at) or tally.recipe in watch.aside:
                continue
            if tally.agreed:
                watch.agree(tally.at)
            elif tally.disputed and not _all_in(tally.minority(), blamed):
                found.append(tally.at)
        self.rounds = tuple(found[-MOST_DISPUTES:])

    def words(self, report: NodeReport, watch: ReplayWatch) -> NodeReport:
        """The report as others should have it: with the results of disputed rounds, and of no others."""
        if not any(rank.replays or rank.recipes for rank in report.ranks):
            return report
        told = {at: watch.rounds.results(at) for at in self.rounds}
        recipes = {at.recipe for at in self.rounds}

        def trimmed(rank: RankReport) -> RankReport:
            results = tuple(r[rank.rank] for r in told.values() if rank.rank in r)
            views = tuple(view for view in rank.recipes if view.recipe in recipes)
            return replace(rank, recipes=views, replays=results, replay_cost=None)

        return replace(report, ranks=tuple(map(trimmed, report.ranks)))


def _all_in(runs: Runs, ranks: frozenset[int]) -> bool:
    return all(rank in ranks for first, size in runs for rank in range(first, first + size))
