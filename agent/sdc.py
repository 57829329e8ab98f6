"""One replay round judged by C3 (SCOUT §2, §3): who computes something else than its peers.

The parts of a replay are judged in the order in which they depend on each other: input, parameters, output,
gradients, optimizer. A rank that deviates in one part is not compared in those behind it: another input or
other parameters give another output on healthy hardware.

A rank that disagrees with itself between its two runs deviates, whatever its first run said: its evidence
equals nobody's. Where most of the group do so, the recipe is not deterministic; it proves nothing and is set
aside. Missing results count in N and never help a value to a majority.

A value that holds NaN or infinity may be what all have (a mask is full of it), so it is compared like any
other; where a majority is finite, the rest is NONFINITE. Nobody calls a round with such results agreement.

Parameters on which no two ranks agree were never replicas of each other: such a recipe is set aside too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scoutd.agent.consensus import exact
from scoutd.agent.replay import Part, ReplayResult, RoundKey
from scoutd.agent.verdict import Cause, Status

CAUSES: Final[Mapping[Part, Cause]] = {
    Part.INPUT: Cause.SDC_BROADCAST,
    Part.PARAMETER: Cause.SDC_PARAMETER,
    Part.OUTPUT: Cause.SDC_OUTPUT,
    Part.INPUT_GRADIENT: Cause.SDC_GRADIENT,
    Part.PARAMETER_GRADIENT: Cause.SDC_GRADIENT,
    Part.OPTIMIZER: Cause.SDC_OPTIMIZER,
}
WORDS: Final[Mapping[Part, str]] = {
    Part.INPUT: "input",
    Part.PARAMETER: "parameters",
    Part.OUTPUT: "output",
    Part.INPUT_GRADIENT: "input gradient",
    Part.PARAMETER_GRADIENT: "parameter gradients",
    Part.OPTIMIZER: "optimizer step",
}


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one round. ``peers`` is the size of the group; whoever is not in ``results`` is missing.
    ``age_ns``: since its first result. ``again``: it was closed before, and is about times only now."""

    at: RoundKey
    peers: int
    results: Mapping[int, ReplayResult]
    age_ns: int = 0
    again: bool = False

    @property
    def complete(self) -> bool:
        return len(self.results) >= self.peers


@dataclass(frozen=True, slots=True)
class Deviation:
    """Ranks that differ from the majority in ``part``; nobody where C3 cannot judge, with ``reason``.
    ``majority`` is None then. ``restless``: those of ``ranks`` that differ from themselves."""

    part: Part
    cause: Cause
    status: Status
    ranks: tuple[int, ...]
    values: Mapping[int, int]
    majority: int | None = None
    restless: frozenset[int] = frozenset()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """``aside``: why the recipe proves nothing, empty if it does. ``agreed``: all peers spoke, and agree in
    every part. ``cleared``: ranks that agree with the majority in every part that was judged."""

    deviations: tuple[Deviation, ...] = ()
    cleared: tuple[int, ...] = ()
    aside: str = ""
    agreed: bool = False


@dataclass
class _Sieve:
    """The judgement while it is made."""

    round: Round
    out: set[int] = field(default_factory=set)
    deviations: list[Deviation] = field(default_factory=list)
    agreed: bool = True


def judge(round_: Round) -> Judgement:
    """What the results of this round say. Reference: SCOUT §3, lines R_broadcast, R_coll, R_sdc."""
    sieve = _Sieve(round_)
    for part in Part:
        aside = _judge_part(sieve, part)
        if aside:
            return Judgement(aside=aside)
        if sieve.deviations and not sieve.deviations[-1].ranks:
            break
    nameless = bool(sieve.deviations) and not sieve.deviations[-1].ranks
    cleared = () if nameless else tuple(sorted(set(round_.results) - sieve.out))
    agreed = sieve.agreed and round_.complete and round_.peers > 1 and not sieve.deviations
    return Judgement(tuple(sieve.deviations), cleared, "", agreed)


def _judge_part(sieve: _Sieve, part: Part) -> str:
    """Adds what this part says; returns why the recipe has to be set aside, empty if it has not."""
    speaking = {
        rank: result
        for rank, result in sorted(sieve.round.results.items())
        if rank not in sieve.out and result.signature(part) is not None
    }
    if not speaking:
        return ""
    restless = frozenset(r for r, result in speaking.items() if result.restless(part))
    if 2 * len(restless) > sieve.round.peers:
        return f"{len(restless)} of {sieve.round.peers} ranks disagree with themselves in the {WORDS[part]}"
    values = {rank: result.signature(part) or 0 for rank, result in speaking.items()}
    evidence = [(r, value) if r in restless else (-1, value) for r, value in values.items()]
    missing = max(0, sieve.round.peers - len(evidence))
    consensus = exact([*evidence, *[None] * missing])
    if part is not Part.PARAMETER and not all(result.finite(part) for result in speaking.values()):
        sieve.agreed = False
    if consensus.status is Status.ATTRIBUTED:
        ranks = tuple(r for r, out in zip(values, consensus.outliers, strict=False) if out)
        _attribute(sieve, part, ranks, speaking, values, restless)
    elif consensus.status is Status.INCONCLUSIVE:
        sieve.agreed = False
        distinct = len(set(evidence))
        if part is Part.PARAMETER and distinct == len(evidence) >= 3:
            return "no two ranks have the same parameters"
        if distinct > 1:
            cause = Cause.STATE_DIVERGENCE if part is Part.PARAMETER else CAUSES[part]
            reason = consensus.reason
            sieve.deviations.append(
                Deviation(part, cause, consensus.status, (), values, None, restless, reason)
            )
    return ""


def _attribute(
    sieve: _Sieve,
    part: Part,
    ranks: tuple[int, ...],
    speaking: Mapping[int, ReplayResult],
    values: Mapping[int, int],
    restless: frozenset[int],
) -> None:
    """The minority deviates. Ranks whose value is not finite, where that of the majority is, are said so."""
    healthy = next(rank for rank in values if rank not in ranks)
    infinite = tuple(r for r in ranks if not speaking[r].finite(part) and speaking[healthy].finite(part))
    other = tuple(r for r in ranks if r not in infinite)
    for cause, those in ((Cause.NONFINITE, infinite), (CAUSES[part], other)):
        if those:
            sieve.deviations.append(
                Deviation(
                    part,
                    cause,
                    Status.ATTRIBUTED,
                    those,
                    values,
                    values[healthy],
                    restless.intersection(those),
                )
            )
    sieve.out.update(ranks)
