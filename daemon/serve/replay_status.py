"""The wire form of a job's replays: recipes of all local ranks as one list, and what was judged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from scoutd.agent.evidence import RankReport
from scoutd.agent.replay import RecipeState, RecipeView
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.daemon.codec import seconds
from scoutd.daemon.jobs import Job
from scoutd.proto.v1 import query_pb2 as pb

WORST: Final = (RecipeState.DISABLED, RecipeState.LEARNING, RecipeState.READY)


def encode_replays(job: Job) -> pb.ReplayStatus | None:
    """None where no local rank tells of replays."""
    ranks = job.observation.report.ranks
    costs = [rank.replay_cost for rank in ranks if rank.replay_cost is not None]
    if not costs:
        return None
    watch = job.core.replays
    return pb.ReplayStatus(
        every=max(cost.every for cost in costs),
        variants=max(cost.variants for cost in costs),
        faults=any(cost.faults for cost in costs),
        replays=sum(cost.replays for cost in costs),
        share=max(cost.share for cost in costs),
        agreed=watch.tally.agreed,
        deviating=watch.tally.deviating,
        undecided=watch.tally.undecided,
        recipes=encode_recipes(ranks, watch),
        request=min(cost.request for cost in costs),
        waiting=watch.waiting,
    )


def encode_recipes(ranks: Iterable[RankReport], watch: ReplayWatch) -> list[pb.RecipeStatus]:
    """One per recipe, whatever the number of ranks; a recipe that ranks know in two forms is two."""
    found: dict[int, list[tuple[int, RecipeView]]] = {}
    for rank in ranks:
        for view in rank.recipes:
            found.setdefault(view.recipe, []).append((rank.rank, view))
    return [_recipe(views, watch) for views in found.values()]


def _recipe(views: list[tuple[int, RecipeView]], watch: ReplayWatch) -> pb.RecipeStatus:
    worst = min((view for _, view in views), key=lambda view: WORST.index(view.state))
    return pb.RecipeStatus(
        recipe=f"{worst.recipe:016x}",
        kind=worst.kind.value,
        mode=worst.mode.value,
        name=worst.name,
        state=worst.state.value,
        reason=worst.reason,
        peers=worst.peers,
        replays=sum(view.replays for _, view in views),
        cost_s=seconds(sum(view.cost_ns for _, view in views)),
        aside=watch.aside.get(worst.recipe, ""),
        disabled=[rank for rank, view in views if view.state is RecipeState.DISABLED],
    )
