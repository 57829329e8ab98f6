"""Replay rounds counted across nodes: who says what, in a few bytes (design §4).

While all is well the results of a round stay on their node; what travels is a *tally*: per round the values
that were seen, each with the ranks that have it, as runs. Neighbours that agree are one run however many they
are, so a round of a large job costs about forty bytes, and probes carry the newest ones along; peers that are
not neighbours (of tensor-parallel replicas) cost three bytes each. How long the ranks took goes with it as a
sketch (``timesketch``), at most fifty bytes. Tallies merge by union: order, duplicates and loss are harmless,
and every agent ends with the same.

A tally in which all members are in one camp is agreement of the whole group. One with two camps, or with a
flaw (a rank that disagrees with itself, or a value that is not finite), is a *dispute*: then the reports
are exchanged, with the results of that round, and all agents judge the same evidence.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scoutd.agent import timesketch
from scoutd.agent.replay import ReplayResult, RoundKey
from scoutd.agent.timesketch import Times

Runs = tuple[tuple[int, int], ...]
"""Ranks as (first, count), in order, apart from each other."""

MOST_ROUNDS: Final = 256
MOST_TOLD: Final = 16
"""Rounds in one message, the newest first: 1.4 kB where a job replays several recipes a second. One that
keeps to the usual cadence has a round to tell now and then."""

FLAW: Final = 1
"""The lowest bit of a value: something in it is flawed."""


class Camp(NamedTuple):
    value: int
    runs: Runs


class Tally(NamedTuple):
    """What is known of one round. ``peers``: size of the group, 0 where nobody has told yet. ``times``: a
    sketch of how long the ranks took, empty where it is not known."""

    group: int
    recipe: int
    key: int
    scheme: int
    peers: int
    camps: tuple[Camp, ...]
    times: Times = ()

    @property
    def at(self) -> RoundKey:
        return RoundKey(self.group, self.recipe, self.key, self.scheme)

    @property
    def disputed(self) -> bool:
        return len(self.camps) > 1 or any(camp.value & FLAW for camp in self.camps)

    @property
    def complete(self) -> bool:
        """Everybody spoke."""
        return self.peers > 1 and sum(count(camp.runs) for camp in self.camps) >= self.peers

    @property
    def agreed(self) -> bool:
        """Everybody spoke, and all say the same."""
        return self.complete and not self.disputed

    def minority(self) -> Runs:
        """Ranks outside of the largest camp, and those that are flawed."""
        camps = sorted(self.camps, key=lambda camp: (camp.value & FLAW, -count(camp.runs), camp.value))
        rest = camps if camps[0].value & FLAW else camps[1:]
        return tuple(run for camp in rest for run in camp.runs)


def value_of(result: ReplayResult) -> int:
    """64 bits: equal for results that agree, with a flaw marked."""
    words = [0 if s is None else s + 1 for s in result.signatures]
    data = b"".join(word.to_bytes(9, "little") for word in words)
    value = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
    return value | FLAW if result.differing or result.nonfinite else value & ~FLAW


def salt_of(at: RoundKey) -> int:
    """What chooses the random ranks in the sketch of this round."""
    return at.key ^ at.recipe ^ at.group


def count(runs: Runs) -> int:
    return sum(size for _, size in runs)


def union(a: Runs, b: Runs) -> Runs:
    """The ranks of both."""
    merged: list[tuple[int, int]] = []
    for first, size in sorted((*a, *b)):
        if merged and first <= merged[-1][0] + merged[-1][1]:
            begin, known = merged[-1]
            merged[-1] = (begin, max(begin + known, first + size) - begin)
        else:
            merged.append((first, size))
    return tuple(merged)


@dataclass
class _Count:
    peers: int = 0
    camps: dict[int, Runs] = field(default_factory=dict)
    times: Times = ()
    tellings: int = 0

    def add(self, value: int, runs: Runs) -> bool:
        """Whether that is news."""
        known = self.camps.get(value, ())
        self.camps[value] = union(known, runs)
        return self.camps[value] != known

    def time(self, salt: int, times: Times) -> bool:
        """Whether that is news."""
        known = self.times
        self.times = timesketch.merged(salt, (*known, *times)) if times else known
        return self.times != known


class Tallies:
    """The newest rounds. ``tellings``: how often news is told on, O(log N); set by the exchange. ``news``
    grows with whatever becomes known."""

    def __init__(self) -> None:
        self.tellings = 2
        self.news = 0
        self._rounds: OrderedDict[RoundKey, _Count] = OrderedDict()
        self._mine: OrderedDict[tuple[RoundKey, int], None] = OrderedDict()

    def add(self, rank: int, result: ReplayResult, peers: int) -> bool:
        """A result of this node's own; False for one that was added before, which costs a look."""
        known = (result.round, rank)
        if known in self._mine:
            return False
        self._mine[known] = None
        while len(self._mine) > 16 * MOST_ROUNDS:
            self._mine.popitem(last=False)
        at = result.round
        self._note(at, peers, value_of(result), ((rank, 1),))
        if result.module_ns > 0:
            self._time(at, ((rank, timesketch.code_of(result.module_ns)),))
        return True

    def merge(self, tallies: Iterable[Tally]) -> None:
        """What another agent knows."""
        for tally in tallies:
            for camp in tally.camps:
                self._note(tally.at, tally.peers, camp.value, camp.runs)
            self._time(tally.at, tally.times)

    def _note(self, at: RoundKey, peers: int, value: int, runs: Runs) -> None:
        found = self._rounds.get(at)
        if found is None:
            found = self._rounds[at] = _Count()
            while len(self._rounds) > MOST_ROUNDS:
                self._rounds.popitem(last=False)
        found.peers = max(found.peers, peers)
        if found.add(value, runs):
            found.tellings = self.tellings
            self.news += 1

    def _time(self, at: RoundKey, times: Times) -> None:
        """Times of a round that is known."""
        found = self._rounds.get(at)
        if found is not None and found.time(salt_of(at), times):
            found.tellings = self.tellings
            self.news += 1

    def told(self) -> tuple[Tally, ...]:
        """What is worth telling now: the newest rounds of which there is news."""
        chosen = [at for at in reversed(self._rounds) if self._rounds[at].tellings > 0][:MOST_TOLD]
        for at in chosen:
            self._rounds[at].tellings -= 1
        return tuple(self._tally(at) for at in chosen)

    def all(self) -> list[Tally]:
        """Every round that is remembered, oldest first."""
        return [self._tally(at) for at in self._rounds]

    def _tally(self, at: RoundKey) -> Tally:
        found = self._rounds[at]
        camps = tuple(Camp(value, runs) for value, runs in sorted(found.camps.items()))
        return Tally(at.group, at.recipe, at.key, at.scheme, found.peers, camps, found.times)
