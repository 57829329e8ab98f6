"""From a deviation to a finding: the words, the ranks, both values (design §4, §6).

The finding names the module and the recipe, and tells the majority's value beside the rank's, so that a
person can check it and another agent says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scoutd.agent.evidence import Phase
from scoutd.agent.finding import Finding
from scoutd.agent.narrative import ranks_text
from scoutd.agent.replay import REQUESTED, Part, RecipeView, RoundKey
from scoutd.agent.sdc import WORDS, Deviation, Judgement, Round
from scoutd.agent.verdict import Action, Cause, Cleared, EvidenceItem, Implicated, Scope, Symptom

ANCHOR: Final = "replay"
"""One verdict for a set of ranks and a cause, whichever recipe showed it first."""

PHASES: Final[Mapping[Part, Phase]] = {
    Part.INPUT: Phase.INPUT,
    Part.PARAMETER: Phase.FORWARD,
    Part.OUTPUT: Phase.FORWARD,
    Part.INPUT_GRADIENT: Phase.BACKWARD,
    Part.PARAMETER_GRADIENT: Phase.BACKWARD,
    Part.OPTIMIZER: Phase.OPTIMIZER,
}
MOST_VALUES: Final = 8
"""Different values that a finding without a majority lists."""

Place = tuple[str, int, str]
"""Where a rank lives: node, process id, device."""


DEEDS: Final[Mapping[Part, tuple[str, str]]] = {
    Part.INPUT: ("was given another input", "were given other inputs"),
    Part.PARAMETER: ("holds other parameters", "hold other parameters"),
    Part.OUTPUT: ("computes another output", "compute other outputs"),
    Part.INPUT_GRADIENT: ("computes another input gradient", "compute other input gradients"),
    Part.PARAMETER_GRADIENT: ("computes other parameter gradients", "compute other parameter gradients"),
    Part.OPTIMIZER: ("computes another optimizer step", "compute other optimizer steps"),
}
"""What one rank, and what several, do that their peers do not."""


def finding(
    deviation: Deviation,
    judgement: Judgement,
    round_: Round,
    recipe: RecipeView | None,
    places: Mapping[int, Place],
) -> Finding:
    """What this deviation means for people."""
    named = bool(deviation.ranks)
    implicated = tuple(
        Implicated(rank, *places.get(rank, ("", 0, "")), _reason(deviation, round_, rank))
        for rank in deviation.ranks
    )
    name = operation(recipe, round_.at)
    return Finding(
        cause=deviation.cause,
        status=deviation.status,
        scope=Scope.RANK if named else Scope.GROUP,
        summary=_summary(deviation, round_, recipe.name if recipe is not None else name, places),
        action=Action.FIX_PROGRAM
        if deviation.cause is Cause.STATE_DIVERGENCE and len(set(deviation.values.values())) > 2
        else Action.DIAGNOSE_HARDWARE,
        anchor=ANCHOR if named else f"{ANCHOR} in group {round_.at.group:016x}",
        onset_age_ns=round_.age_ns,
        implicated=implicated,
        cleared=tuple(Cleared(rank, (), "agrees with the majority") for rank in judgement.cleared),
        phase=PHASES[deviation.part],
        operation=name,
        peer_group=tuple(sorted(round_.results)),
        evidence=evidence(deviation, round_, name),
        symptom=Symptom.SDC,
    )


def operation(recipe: RecipeView | None, at: RoundKey) -> str:
    """ "BLOCK blocks.1 (Block)": the recipe's kind and module."""
    return f"{recipe.kind.value} {recipe.name}" if recipe is not None else f"recipe {at.recipe:016x}"


def evidence(deviation: Deviation, round_: Round, name: str) -> tuple[EvidenceItem, ...]:
    """Both values of every rank that deviates, and who said nothing."""
    at, word = round_.at, WORDS[deviation.part]
    where = f"{name} (recipe {at.recipe:016x}), {moment(round_)}"
    items = [
        EvidenceItem(
            rank,
            "replay",
            f"{word} {deviation.values[rank]:016x}, majority {deviation.majority or 0:016x}: {where}"
            + ("; its two runs differ" if rank in deviation.restless else ""),
        )
        for rank in deviation.ranks
    ]
    if not deviation.ranks:
        items += [EvidenceItem(None, "replay", f"{word} {text}: {where}") for text in _camps(deviation)]
    if not round_.complete:
        missing = round_.peers - len(round_.results)
        items.append(EvidenceItem(None, "replay", f"no result of {missing} of {round_.peers} ranks: {where}"))
    return tuple(items)


def moment(round_: Round) -> str:
    """ "step 50", "request 7 at step 312"."""
    step = next(iter(round_.results.values())).step
    at = round_.at.key
    return f"request {at & ~REQUESTED:x} at step {step}" if at & REQUESTED else f"step {step}"


def _camps(deviation: Deviation) -> list[str]:
    """Who says what, largest camp first."""
    camps: dict[int, list[int]] = {}
    for rank, value in deviation.values.items():
        camps.setdefault(value, []).append(rank)
    ordered = sorted(camps.items(), key=lambda each: (-len(each[1]), each[1]))
    return [f"{value:016x} of {ranks_text(ranks)}" for value, ranks in ordered[:MOST_VALUES]]


def _reason(deviation: Deviation, round_: Round, rank: int) -> str:
    word = WORDS[deviation.part]
    if rank in deviation.restless:
        return f"its two runs gave different results ({word}, {moment(round_)})"
    if deviation.cause is Cause.NONFINITE:
        return f"NaN or infinity in the {word} where its peers have none ({moment(round_)})"
    agree = sum(value == deviation.majority for value in deviation.values.values())
    return (
        f"{word} {deviation.values[rank]:016x} instead of {deviation.majority or 0:016x}, on which "
        f"{agree} of {round_.peers} agree ({moment(round_)})"
    )


def _summary(deviation: Deviation, round_: Round, name: str, places: Mapping[int, Place]) -> str:
    word = WORDS[deviation.part]
    if not deviation.ranks:
        return (
            f"the ranks do not agree about the {word} of {name} ({moment(round_)}), and nobody can be "
            f"named: {deviation.reason}"
        )
    who, one = who_and_where(deviation.ranks, places), len(deviation.ranks) == 1
    at = f"replay of {name}, {moment(round_)}"
    agree = sum(value == deviation.majority for value in deviation.values.values())
    if deviation.cause is Cause.NONFINITE:
        return f"{who} {'has' if one else 'have'} NaN or infinity in the {word}, {agree} peers have not: {at}"
    if deviation.restless:
        does = "does not get" if one else "do not get"
        return f"{who} {does} the same {word} when the same work is done twice, {agree} peers do: {at}"
    return f"{who} {DEEDS[deviation.part][0 if one else 1]} than {agree} peers that agree: {at}"


def who_and_where(ranks: tuple[int, ...], places: Mapping[int, Place]) -> str:
    """ "rank 2 on node-17"."""
    nodes = sorted({places[rank][0] for rank in ranks if rank in places})
    return f"{ranks_text(ranks)} on {', '.join(nodes)}" if nodes else ranks_text(ranks)
