"""Replay rounds: results of many ranks, collected until a round can be judged.

A round is opened by the first result that carries its key. It closes when all members of its peer group have
told theirs, or at a deadline: what is missing then stays missing and is never agreement. A closed round stays
closed, so that every agent judges it once; results that come later are ignored.

A round that was closed because all agree is opened *again* when somebody looks slow in it, for its times
alone; then all results come anew.

Reports repeat the newest results of a rank. Looking at one again costs a look into a set.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.replay import REQUESTED, RecipeView, ReplayResult, RoundKey
from scoutd.agent.sdc import Round

MOST_OPEN: Final = 1024
"""64 recipes, each with a few rounds under way. Beyond it the oldest round is given up."""

MOST_CLOSED: Final = 8192
MOST_NAMES: Final = 1024
"""Recipes of all groups of a job that this agent sees; many more are invented."""


@dataclass
class _Open:
    """``began_ns``: when the first result was made, on the local clock; ``since_ns``: when it was opened
    again, None where it was not. ``asked``: its results are wanted, even if all agree."""

    began_ns: int
    peers: int = 0
    results: dict[int, ReplayResult] = field(default_factory=dict)
    since_ns: int | None = None
    asked: bool = False

    def due(self, now_ns: int, deadline_ns: int) -> bool:
        since = self.began_ns if self.since_ns is None else self.since_ns
        return (self.peers > 0 and len(self.results) >= self.peers) or now_ns - since >= deadline_ns


class Rounds:
    """The rounds of one generation of a job. ``names``: what each recipe runs. ``dropped`` counts rounds that
    were given up."""

    def __init__(self) -> None:
        self.names: Final[dict[int, RecipeView]] = {}
        self.dropped = 0
        self._open: Final[dict[RoundKey, _Open]] = {}
        self._closed: Final[OrderedDict[RoundKey, None]] = OrderedDict()

    def clear(self) -> None:
        self.names.clear()
        self._open.clear()
        self._closed.clear()

    def take(self, report: NodeReport, now_ns: int, age_ns: int = 0) -> None:
        """What this node's ranks told, ``age_ns`` ago, is part of its rounds."""
        for rank in report.replayed:
            self._take_rank(rank, now_ns - age_ns)

    def _take_rank(self, rank: RankReport, told_ns: int) -> None:
        for result in rank.replays:
            at = result.round
            if at in self._closed:
                continue
            known = self._open.get(at)
            if known is None:
                known = self._begin(at, told_ns - result.age_ns)
            if rank.rank not in known.results:
                self._learn_names(rank)
                known.results[rank.rank] = result
                known.began_ns = min(known.began_ns, told_ns - result.age_ns)
                known.peers = max(known.peers, self._peers(rank, at))

    @property
    def requested(self) -> int:
        """Open rounds that somebody asked for."""
        return sum(bool(at.key & REQUESTED) for at, known in self._open.items() if known.since_ns is None)

    def is_closed(self, at: RoundKey) -> bool:
        return at in self._closed

    def settle(self, at: RoundKey) -> bool:
        """All peers are known to agree: the round is closed without their results. False if it was before, or
        its results are wanted."""
        if at in self._closed or self._open.setdefault(at, _Open(0)).asked:
            return False
        self._close(at)
        return True

    def ask(self, at: RoundKey, now_ns: int) -> None:
        """The round is open until its results are here, again if it was closed."""
        if at in self._closed:
            del self._closed[at]
            self._open[at] = _Open(now_ns, since_ns=now_ns)
        self._open.setdefault(at, _Open(now_ns)).asked = True

    def _begin(self, at: RoundKey, began_ns: int) -> _Open:
        if len(self._open) >= MOST_OPEN:
            self._close(next(iter(self._open)))
            self.dropped += 1
        known = self._open[at] = _Open(began_ns)
        return known

    def _learn_names(self, rank: RankReport) -> None:
        for recipe in rank.recipes:
            if len(self.names) < MOST_NAMES:
                self.names.setdefault(recipe.recipe, recipe)

    def _peers(self, rank: RankReport, at: RoundKey) -> int:
        """The size of the group as this rank knows it; 0 where it does not tell, and the round waits."""
        return next((r.peers for r in rank.recipes if (r.recipe, r.group) == (at.recipe, at.group)), 0)

    def due(self, now_ns: int, deadline_ns: int) -> list[Round]:
        """Rounds that are complete or older than ``deadline_ns``, oldest key first; this closes them."""
        ready = [(at, known) for at, known in self._open.items() if known.due(now_ns, deadline_ns)]
        ready.sort(key=lambda each: (each[0].key, each[0]))
        for at, _ in ready:
            self._close(at)
        return [
            Round(
                at,
                max(known.peers, len(known.results)),
                known.results,
                now_ns - known.began_ns,
                known.since_ns is not None,
            )
            for at, known in ready
        ]

    def _close(self, at: RoundKey) -> None:
        del self._open[at]
        self._closed[at] = None
        while len(self._closed) > MOST_CLOSED:
            self._closed.popitem(last=False)
