"""The job's own history of silence: the longest that ended well, per phase.

A limit of silence is right if it lies above everything that a healthy job does and not far above. What this
job did so far is the best measure: whenever a rank moves again, the silence before counts for the phase that
it was silent in. Ranks that waited for others are left out, nobody judges their silence; silence before the
second step counts apart, because everything is slow once. O(local ranks + phases), whatever the job's length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scoutd.agent.evidence import Phase, RankReport
from scoutd.agent.settings import NS_PER_S
from scoutd.agent.snapshot import Snapshot

FIRST_STEP: Final = "FIRST_STEP"
FACTOR: Final = 3.0
"""Suggested limit ÷ longest healthy silence: three times the worst seen leaves room for one that is worse."""

LEAST_S: Final = 5.0
"""Below this, pauses of the interpreter and of the machine look like stalls."""


@dataclass(frozen=True, slots=True)
class Silence:
    """``ended``: how often a rank fell silent in this phase for a second or more and moved again."""

    longest_ns: int
    ended: int


class History:
    """``silences`` by phase name, or FIRST_STEP; only phases in which some rank was seen silent."""

    def __init__(self) -> None:
        self._silences: dict[str, Silence] = {}
        self._last: dict[int, tuple[str, int]] = {}

    @property
    def silences(self) -> Mapping[str, Silence]:
        return dict(self._silences)

    def see(self, moment: Snapshot, ranks: Iterable[RankReport]) -> None:
        """One look at the local ranks; a silence that is shorter than at the last look has ended."""
        last, self._last = self._last, {}
        for report in ranks:
            if not moment.alive(report.rank):
                continue
            silent = moment.silence_ns(report.rank)
            kind, before = last.get(report.rank, ("", 0))
            if kind and silent < before:
                self._end(kind, before)
            self._last[report.rank] = (_kind(report), silent)

    def _end(self, kind: str, lasted_ns: int) -> None:
        known = self._silences.get(kind, Silence(0, 0))
        ended = known.ended + (lasted_ns >= NS_PER_S)
        self._silences[kind] = Silence(max(known.longest_ns, lasted_ns), ended)


def suggestion_s(longest_ns: int) -> float:
    """max(LEAST_S, FACTOR · longest healthy silence), in whole seconds."""
    return float(-(-int(max(LEAST_S * NS_PER_S, FACTOR * longest_ns)) // NS_PER_S))


def _kind(report: RankReport) -> str:
    """Empty for a rank that waits for others, or has published nothing."""
    coordinate = report.coordinate
    if coordinate is None or coordinate.waiting or coordinate.phase is Phase.NONE:
        return ""
    own_limit = coordinate.phase in (Phase.INIT, Phase.EXITING)
    return FIRST_STEP if coordinate.step == 0 and not own_limit else coordinate.phase.value
