"""Who looks slow in the sketches of successive rounds, and which rounds have to be told in full for it.

A peer group spread over nodes has all of its replay times nowhere, only sketches of them everywhere. The
rule for stragglers is tried on those: a rank that is among the slowest in three successive rounds of a
recipe, each time beyond floors and noise of the random few, is a *suspect*. Then these rounds are asked for:
the agent tells the times of its own ranks, others that see it tell theirs, whether they suspect anybody or
not, and all judge the same three rounds exactly. Suspicions are judged one by one, in an order that follows
from the rounds, and a moment after the last result came, so that all agents judge the same one first. Once
somebody is named the others are dropped: who else is slow will be so in the next round, too.

Jitter hardly ever does it, because the limits are those of the rule for a group of this size. What looks slow
and is not, for the exact rule or for want of somebody's times, is let rest for a number of rounds that
doubles each time: a border case does not keep agents exchanging.

Rounds on request and rounds of the schedule have windows of their own, because only alike their keys say
which was first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scoutd.agent.consensus import Floors
from scoutd.agent.replay import REQUESTED, RoundKey
from scoutd.agent.sdc import Round
from scoutd.agent.statistics import median
from scoutd.agent.straggler import GROUPS_LIMIT, StragglerSettings, exceeds, noise
from scoutd.agent.tally import Runs, Tally, salt_of
from scoutd.agent.timesketch import SLOWEST, ns_of, sample

SMALLEST_SAMPLE: Final = 2
"""Others to compare with; a group of three has no more."""
MOST_ASKED: Final = 2
"""Suspicions that are told of at a time. A slow rank is slow in all recipes, and one of them names it."""
HOLD_NS: Final = 1_000_000_000
"""An exchange under alarm brings in this time what other agents have asked for."""
FIRST_REST: Final = 3
MOST_DOUBLED: Final = 5
"""The longest rest is 96 rounds of the recipe."""


class Series(NamedTuple):
    """Rounds that follow each other."""

    group: int
    recipe: int
    requested: bool


def series_of(at: RoundKey) -> Series:
    return Series(at.group, at.recipe, bool(at.key & REQUESTED))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The sketch of one round in seconds, and who took part. ``random``: those that chance took. ``kappa``:
    that of a group of this size."""

    at: RoundKey
    kappa: float
    times: dict[int, float]
    random: frozenset[int]
    members: tuple[Runs, ...]

    def others(self, rank: int) -> list[float]:
        return [self.times[other] for other in sorted(self.random) if other != rank]

    def has(self, rank: int) -> bool:
        return any(first <= rank < first + size for runs in self.members for first, size in runs)

    def quick(self, rank: int, floors: Floors) -> bool:
        """It took part and was not slow in this round. Who is not in the sketch was no slower than the
        slowest few."""
        slowest = sorted(self.times, key=lambda each: -self.times[each])[:SLOWEST]
        own = self.times.get(rank, self.times[slowest[-1]])
        others = self.others(rank)
        if len(others) < SMALLEST_SAMPLE or not self.has(rank):
            return False
        centre = median(others)
        limit = max(floors.at(centre), self.kappa * noise([others]) * centre)
        return own <= centre + limit


@dataclass
class _Window:
    """The newest rounds by key. ``rest``: rounds to come in which nobody is suspected. ``vain``: suspicions
    in a row that came to nothing. ``judged``: the newest key that was part of a suspicion."""

    rounds: list[_Seen] = field(default_factory=list)
    rest: int = 0
    vain: int = 0
    judged: int = -1


@dataclass
class Suspicion:
    """``rounds``: which have to be told in full, oldest first; ``found``: those that are, the last of them
    since ``since_ns``."""

    rounds: tuple[RoundKey, ...]
    found: dict[RoundKey, Round] = field(default_factory=dict)
    since_ns: int = 0

    @property
    def told(self) -> tuple[Round, ...]:
        """All rounds, oldest first; nothing while one is missing."""
        complete = len(self.found) == len(self.rounds)
        return tuple(self.found[at] for at in self.rounds) if complete else ()


class Slowness:
    """The sketches of one job, and the suspicions that are not cleared up."""

    def __init__(self, settings: StragglerSettings | None = None) -> None:
        self._settings: Final = settings or StragglerSettings()
        self._windows: Final[OrderedDict[Series, _Window]] = OrderedDict()
        self._open: Final[dict[Series, Suspicion]] = {}

    def clear(self) -> None:
        self._windows.clear()
        self._open.clear()

    def take(self, tally: Tally) -> bool:
        """A round of which everybody has spoken; False if it was known, or is too old to be of use."""
        at = tally.at
        series = series_of(at)
        window = self._window(series)
        if not tally.times or any(seen.at == at for seen in window.rounds):
            return False
        times = {rank: ns_of(code) / 1e9 for rank, code in tally.times}
        members = tuple(camp.runs for camp in tally.camps)
        kappa = self._settings.kappa_of(tally.peers)
        seen = _Seen(at, kappa, times, frozenset(sample(salt_of(at), times)), members)
        window.rounds = sorted([*window.rounds, seen], key=lambda each: each.at)[-self._settings.rounds :]
        if seen not in window.rounds:
            return False
        window.rest = max(0, window.rest - 1)
        return True

    def _window(self, series: Series) -> _Window:
        window = self._windows.setdefault(series, _Window())
        self._windows.move_to_end(series)
        if len(self._windows) > GROUPS_LIMIT:
            self._windows.popitem(last=False)
        return window

    def slow(self, at: RoundKey) -> frozenset[int]:
        """Ranks that look slow in each of the newest rounds of this series."""
        window = self._windows.get(series_of(at))
        if window is None or len(window.rounds) < self._settings.rounds:
            return frozenset()
        in_all = set.intersection(*(set(seen.times) for seen in window.rounds))
        return frozenset(rank for rank in in_all if self._looks_slow(rank, window.rounds))

    def _looks_slow(self, rank: int, rounds: list[_Seen]) -> bool:
        others = [seen.others(rank) for seen in rounds]
        if min(map(len, others)) < SMALLEST_SAMPLE:
            return False
        own = [seen.times[rank] for seen in rounds]
        return exceeds(own, others, rounds[-1].kappa, self._settings.floors)

    def quick(self, at: RoundKey, ranks: Iterable[int]) -> frozenset[int]:
        """Those of these ranks that took part in this round and were not slow."""
        window = self._windows.get(series_of(at))
        seen = next((each for each in window.rounds if each.at == at), None) if window is not None else None
        return frozenset(r for r in ranks if seen is not None and seen.quick(r, self._settings.floors))

    def suspect(self, at: RoundKey) -> tuple[RoundKey, ...]:
        """The newest rounds of this series are asked for, unless they rest or older ones are; which."""
        window = self._windows.get(series_of(at))
        if window is None or window.rest:
            return ()
        return self._ask(series_of(at), tuple(seen.at for seen in window.rounds))

    def join(self, told: Iterable[RoundKey], now_ns: int) -> tuple[RoundKey, ...]:
        """Other agents tell these rounds. Those of which somebody suspects slowness are asked for here, too,
        and where agents suspect it of different rounds all take the newest; which are new."""
        by_series: dict[Series, set[RoundKey]] = {}
        for at in told:
            by_series.setdefault(series_of(at), set()).add(at)
        asked: list[RoundKey] = []
        for series, rounds in by_series.items():
            known = self._open.get(series)
            newest = tuple(sorted(rounds.union(known.rounds if known else ()))[-self._settings.rounds :])
            if known is not None and newest != known.rounds:
                kept = {at: round_ for at, round_ in known.found.items() if at in newest}
                self._open[series] = Suspicion(newest, kept, now_ns)
                asked += [at for at in newest if at not in known.rounds]
            elif len(newest) == self._settings.rounds:
                asked += self._ask(series, newest)
        return tuple(asked)

    def _ask(self, series: Series, rounds: tuple[RoundKey, ...]) -> tuple[RoundKey, ...]:
        window = self._window(series)
        if series in self._open or rounds[-1].key <= window.judged or len(self._open) >= GROUPS_LIMIT:
            return ()
        self._open[series] = Suspicion(rounds)
        return rounds

    @property
    def wanted(self) -> tuple[RoundKey, ...]:
        """Rounds whose results are asked for now."""
        return tuple(at for each in self._ordered()[:MOST_ASKED] for at in each.rounds)

    def _ordered(self) -> list[Suspicion]:
        """Alike on all agents that have the same."""
        return sorted(self._open.values(), key=lambda each: (each.rounds[-1].key, each.rounds))

    def hand(self, round_: Round, now_ns: int) -> bool:
        """The round closed; False if nobody has asked for it. A suspicion of which a round is not told in
        time has come to nothing."""
        suspicion = self._open.get(series_of(round_.at))
        if suspicion is None or round_.at not in suspicion.rounds:
            return False
        if round_.complete:
            suspicion.found[round_.at] = round_
            suspicion.since_ns = now_ns
        else:
            self.settle(round_.at, confirmed=False)
        return True

    def due(self, now_ns: int, hold_ns: int) -> tuple[Round, ...]:
        """The rounds of the first suspicion if it is to be judged now; nothing otherwise."""
        first = next(iter(self._ordered()), None)
        return first.told if first is not None and now_ns - first.since_ns >= hold_ns else ()

    def settle(self, at: RoundKey, confirmed: bool) -> None:
        """What was suspected in this series is judged. If it is confirmed nothing else is asked for."""
        series = series_of(at)
        closed = [series, *self._open] if confirmed else [series]
        for each in closed:
            suspicion, window = self._open.pop(each, None), self._windows.get(each)
            if suspicion is not None and window is not None:
                window.judged = max(window.judged, suspicion.rounds[-1].key)
        if (window := self._windows.get(series)) is not None:
            window.vain = 0 if confirmed else window.vain + 1
            window.rest = 0 if confirmed else FIRST_REST << min(window.vain - 1, MOST_DOUBLED)
