"""Who is slow, over several rounds of replay timings (design §4, stragglers).

One round cannot tell. In a group of three the scale of a round rests on a single gap, and at 5 % jitter one
member in 64 is often far out. A straggler is slow *again*: so a rank is confirmed only when in each of
``rounds`` successive rounds its time exceeds the median of the others by more than

    the floors, and κ times the noise,

where the noise is what the *others* differ among themselves, relative to their median, pooled over the same
rounds. The candidate is left out because in small groups it would spoil the scale it is measured with.

κ is 2.5 here and not C3's 3.5: three times in a row beyond 2.5 σ is, for normal noise, rarer than once beyond
5 σ, and groups of three keep their sight (0.3 % of 1.2× stragglers missed at 2 % jitter, 3 % with 3.5). Of
many members one is unlucky more often: κ grows with their number, so that a group of any size is as seldom
wrong as one of eight, in two checks of a million. It is 2.7 for 64, 3.0 for 512, 3.5 for 100,000. The
relative floor, 10 %, lies half-way to the smallest slowdown that must be seen. The absolute one, 0.2 ms, is
what a host adds to a short module by being scheduled; a 5 ms module is slow from there on at 4 %.

Only slower than the others counts, and only apart from them: a slowdown of all moves their median and names
nobody (SCOUT §2). More than half of the members must be neither named nor silent.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scoutd.agent.consensus import SMALLEST_GROUP, Consensus, Floors, statistical
from scoutd.agent.statistics import MAD_TO_SIGMA, median

GROUPS_LIMIT: Final = 1024
"""(recipe, peer group) pairs that are remembered; the longest unheard of is forgotten."""
FLOORS: Final = Floors(relative=0.10, absolute=0.0002)
"""Seconds. Why these: see above."""


MOST_CANDIDATES: Final = 128
"""Ranks of one group that are measured against the others; after they are named, more are."""
FEW: Final = 8
KAPPA_GROWTH: Final = 0.075
"""Per doubling of the members; fitted to the normal distribution, within 0.05 from 8 to 100,000."""


@dataclass(frozen=True, slots=True)
class StragglerSettings:
    """``rounds``: how many in succession confirm. ``kappa``: for up to eight members. ``floors``: relative,
    and absolute in seconds."""

    rounds: int = 3
    kappa: float = 2.5
    floors: Floors = FLOORS

    def kappa_of(self, members: int) -> float:
        """N · Q(κ)³ stays what it is for eight: in the range of use that is a line in log N."""
        return self.kappa + KAPPA_GROWTH * math.log2(max(1.0, members / FEW))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one round adds. ``round``: C3 over this round alone, members in order of rank. ``confirmed``: the
    ranks that are slow in all of the last rounds, with ``factors``, their time over the others' median.
    ``reason`` says why nobody is confirmed; empty if somebody is."""

    round: Consensus
    confirmed: tuple[int, ...]
    factors: tuple[float, ...]
    reason: str = ""


Times = Mapping[int, "float | None"]
"""Rank → seconds; None: no evidence."""
Known = dict[int, float]
"""Those that have a valid time."""


class Stragglers:
    """Remembers the last rounds of every recipe and peer group."""

    def __init__(self, settings: StragglerSettings | None = None) -> None:
        self._settings = settings or StragglerSettings()
        self._rounds: OrderedDict[Hashable, deque[Known]] = OrderedDict()

    def observe(self, recipe: Hashable, times: Times) -> Judgement:
        """The judgement after this round; ``times`` has every member of the peer group.

        A round in which not more than half of the members (and at least three) have a time is not
        remembered. Times that are not finite and positive are no times.
        """
        members = tuple(sorted(times))
        single = statistical([times[rank] for rank in members], floors=self._settings.floors)
        known = _known(times)
        if len(known) < SMALLEST_GROUP or 2 * len(known) <= len(members):
            return Judgement(single, (), (), f"too few: {len(known)} of {len(members)} have a time")
        window = self._window((recipe, members))
        window.append(known)
        if len(window) < self._settings.rounds:
            return Judgement(single, (), (), f"round {len(window)} of {self._settings.rounds}")
        return self._decide(single, members, list(window))

    def judge(self, rounds: Sequence[Times]) -> Judgement:
        """The judgement of these successive rounds, the newest last; nothing is remembered."""
        members = tuple(sorted(rounds[-1]))
        single = statistical([rounds[-1][rank] for rank in members], floors=self._settings.floors)
        window = [_known(times) for times in rounds]
        fewest = min(map(len, window))
        if fewest < SMALLEST_GROUP or 2 * fewest <= len(members) or len(rounds) < self._settings.rounds:
            return Judgement(single, (), (), f"too few: {fewest} of {len(members)} in {len(rounds)} rounds")
        return self._decide(single, members, window)

    def clear(self) -> None:
        """Nothing is remembered: the job was restarted."""
        self._rounds.clear()

    def _window(self, key: Hashable) -> deque[Known]:
        window = self._rounds.setdefault(key, deque(maxlen=self._settings.rounds))
        self._rounds.move_to_end(key)
        if len(self._rounds) > GROUPS_LIMIT:
            self._rounds.popitem(last=False)
        return window

    def _decide(self, single: Consensus, members: tuple[int, ...], window: list[Known]) -> Judgement:
        kappa = self._settings.kappa_of(len(members))
        slow = sorted(rank for rank in self._candidates(window) if self._slow(rank, window, kappa))
        if not slow:
            return Judgement(single, (), (), "nobody is slow in every round")
        if 2 * (len(window[-1]) - len(slow)) <= len(members):
            return Judgement(single, (), (), "no strict majority")
        return Judgement(single, tuple(slow), tuple(_factor(rank, window) for rank in slow))

    def _candidates(self, window: list[Known]) -> list[int]:
        """Ranks that may exceed the floors in every round, the slowest if there are many: what is usual among
        the others is sorted out once for all, or a round of N ranks would take N² steps."""
        limits = []
        for known in window:
            ordered = sorted(known.values())
            # Without one of the upper half the others' median lies at this place or above.
            low = ordered[max(0, (len(ordered) - 1) // 2 - 1)]
            limits.append(low + self._settings.floors.at(low))
        least = {
            rank: min(known[rank] / limit for known, limit in zip(window, limits, strict=True))
            for rank in window[-1]
            if all(rank in known for known in window)
        }
        return sorted((r for r in least if least[r] > 1), key=lambda r: (-least[r], r))[:MOST_CANDIDATES]

    def _slow(self, rank: int, window: list[Known], kappa: float) -> bool:
        own = [known[rank] for known in window]
        return exceeds(own, [_others(rank, known) for known in window], kappa, self._settings.floors)


def exceeds(own: Sequence[float], others: Sequence[list[float]], kappa: float, floors: Floors) -> bool:
    """Whether in every round the own time exceeds that of the others by more than floors and noise. The
    floors are tried first: in a healthy group hardly anybody passes them, and the noise is costly."""
    centres = [median(times) for times in others]
    excess = [time - centre for time, centre in zip(own, centres, strict=True)]
    if any(over <= floors.at(centre) for over, centre in zip(excess, centres, strict=True)):
        return False
    least = min(over / centre for over, centre in zip(excess, centres, strict=True))
    return least > kappa * noise(others)


def noise(rounds: Sequence[list[float]]) -> float:
    """The standard deviation of relative times, pooled over rounds, by the median of their deviations.

    Of an odd number the one that is the median has none and says nothing; of an even number all are measured
    from a centre that is made of two of them, which takes 1 − 1/n of the variance.
    """
    pooled: list[float] = []
    for times in rounds:
        centre = median(times)
        deviations = sorted(abs(time / centre - 1) for time in times)
        if len(times) % 2:
            pooled += deviations[1:]
        else:
            unbiased = math.sqrt(len(times) / (len(times) - 1))
            pooled += [deviation * unbiased for deviation in deviations]
    return MAD_TO_SIGMA * median(pooled)


def _known(times: Times) -> Known:
    return {rank: time for rank, time in sorted(times.items()) if time is not None and _valid(time)}


def _others(rank: int, known: Known) -> list[float]:
    return [time for other, time in known.items() if other != rank]


def _factor(rank: int, window: list[Known]) -> float:
    return median([known[rank] / median(_others(rank, known)) for known in window])


def _valid(time: float) -> bool:
    return math.isfinite(time) and time > 0
