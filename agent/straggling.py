"""Replay times judged round by round: a rank that is slow again and again is a straggler (design §4).

``straggler`` decides; here a round becomes times, and its judgement a finding. The module's own time names a
rank, because it holds no communication. Rounds of which results are missing are not judged for time.
"""

from __future__ import annotations

from collections.abc import Mapping

from scoutd.agent.finding import Finding
from scoutd.agent.replay import RecipeView
from scoutd.agent.replayfinding import Place, moment, operation, who_and_where
from scoutd.agent.sdc import Round
from scoutd.agent.settings import NS_PER_S
from scoutd.agent.statistics import median
from scoutd.agent.straggler import Judgement, Stragglers
from scoutd.agent.verdict import (
    Action,
    Cause,
    Cleared,
    EvidenceItem,
    Implicated,
    Scope,
    Status,
    Symptom,
)

ANCHOR = "replay time"


def judge(stragglers: Stragglers, round_: Round) -> Judgement | None:
    """What this round adds; None where results are missing."""
    if not round_.complete:
        return None
    return stragglers.observe((round_.at.recipe, round_.at.group), times(round_))


def times(round_: Round) -> dict[int, float | None]:
    """Rank → seconds."""
    return {rank: result.module_ns / NS_PER_S for rank, result in round_.results.items()}


def healthy(judgement: Judgement, round_: Round) -> tuple[int, ...]:
    """Ranks that are not slow in this round."""
    limit, centre = judgement.round.limit, judgement.round.centre
    if limit is None or centre is None:
        return ()
    return tuple(
        rank
        for rank, result in sorted(round_.results.items())
        if rank not in judgement.confirmed and result.module_ns / NS_PER_S <= centre + limit
    )


def finding(
    judgement: Judgement, round_: Round, recipe: RecipeView | None, places: Mapping[int, Place]
) -> Finding:
    """The ranks that are confirmed, with both times."""
    slow = set(judgement.confirmed)
    name = operation(recipe, round_.at)
    others = median([r.module_ns for rank, r in round_.results.items() if rank not in slow])
    factors = dict(zip(judgement.confirmed, judgement.factors, strict=True))
    texts = {
        rank: f"{_ms(round_.results[rank].module_ns)} where its peers take {_ms(others)} "
        f"({factors[rank]:.2f} times as long over the last rounds)"
        for rank in judgement.confirmed
    }
    most = max(judgement.factors)
    who, one = who_and_where(judgement.confirmed, places), len(judgement.confirmed) == 1
    return Finding(
        cause=Cause.COMPUTE_STRAGGLER,
        status=Status.ATTRIBUTED,
        scope=Scope.RANK,
        summary=f"{who} {'needs' if one else 'need'} {most:.1f} times as long as {'its' if one else 'their'} "
        f"peers: replay of {recipe.name if recipe is not None else name}, round after round",
        action=Action.DIAGNOSE_HARDWARE,
        anchor=ANCHOR,
        onset_age_ns=round_.age_ns,
        implicated=tuple(
            Implicated(rank, *places.get(rank, ("", 0, "")), texts[rank]) for rank in judgement.confirmed
        ),
        cleared=tuple(
            Cleared(rank, (), "as quick as the majority") for rank in sorted(set(round_.results) - slow)
        ),
        operation=name,
        peer_group=tuple(sorted(round_.results)),
        evidence=tuple(
            EvidenceItem(rank, "replay time", f"{text}: {name}, {moment(round_)}")
            for rank, text in texts.items()
        ),
        symptom=Symptom.STRAGGLER,
    )


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms"
