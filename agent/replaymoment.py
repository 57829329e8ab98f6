"""The moment of a verdict of replays: the rounds that it was decided on, as the reports that told them.

The reports are those of the newest look, for where ranks live; each rank has the results of these rounds and
nothing else of replays. Their age is that of the round, so that a judgement from the moment dates it alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.known import Known
from scoutd.agent.moment import Moment
from scoutd.agent.replay import RecipeView
from scoutd.agent.sdc import Round
from scoutd.agent.settings import Settings


def moment_of(
    rounds: Sequence[Round],
    names: Mapping[int, RecipeView],
    reports: Iterable[NodeReport],
    job: str,
    generation: int,
    settings: Settings,
    known: tuple[Known, ...],
) -> Moment:
    """``names``: what recipes run. ``known``: the verdicts that there were before."""
    views = {
        (each.at.recipe, each.at.group): replace(
            names[each.at.recipe], group=each.at.group, peers=each.peers, replays=0, cost_ns=0
        )
        for each in rounds
        if each.at.recipe in names
    }

    def told(rank: RankReport) -> RankReport:
        results = [
            replace(each.results[rank.rank], age_ns=each.age_ns)
            for each in rounds
            if rank.rank in each.results
        ]
        here = {(result.recipe, result.group) for result in results}
        recipes = tuple(view for at, view in views.items() if at in here)
        return replace(rank, replays=tuple(results), recipes=recipes, replay_cost=None)

    return Moment(
        job=job,
        generation=generation,
        reports=tuple((replace(each, ranks=tuple(map(told, each.ranks))), 0) for each in reports),
        paused=(),
        unreachable=frozenset(),
        majority=True,
        stale=frozenset(),
        judge_deaths=False,
        settings=settings,
        known=known,
        replays=True,
    )
