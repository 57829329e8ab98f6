"""When a look at all nodes is worth its cost, and when a glance at this node's own ranks is enough.

A look judges every rank of the job: some ten microseconds each, ten times a second, on every node. Most looks
cannot say anything new, and that is known beforehand from one line per report, made once when it came: the
longest silence in it, and whether there is anything that is judged without silence.

- Before the share of the stall timeout from which on stacks are asked for, nothing is decided.
- Until the timeout, a look only finds out whose stack is wanted, of our own ranks: none is, where the host of
  each is known to wait.
- Otherwise looks follow each other so slowly that they cost a bounded part of a core, more slowly while
  evidence is missing, and where the agent is late already: what is missing then is on its way, and looks at
  the rest would only hold it up. The first look at evidence that has become complete is never put off.

Where something is judged without silence (a death, splits), or a verdict is open, only the last rule saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.agent.waitfor import host_waits

STACK_SHARE: Final = 0.5
"""Stacks of suspects are asked for from this share of the stall timeout on."""

PAUSE_NS_PER_RANK: Final = 25_000
"""Several times what a look costs: a fifth of a core at most. 100 ms for 4,000 ranks, 2.5 s for 100,000."""

INCOMPLETE_NS_PER_RANK: Final = 1_000_000
INCOMPLETE_RANKS: Final = 512
INCOMPLETE_NS: Final = 3_000_000_000
INCOMPLETE_GAPS: Final = 3
INCOMPLETE_MOST_NS: Final = 10_000_000_000
TRICKLE_NS: Final = 60_000_000_000
"""While evidence is missing, looks only make sure that the missing is not waited for without end: so long
after the last report of another node. Three seconds, or as many synchronisations in which nothing came, which
may be with peers that lack the same; ten seconds at most; in small jobs much less, a millisecond a rank.
Reports that go on trickling in are waited for a minute."""

SETTLED_NS_PER_RANK: Final = 5_000_000
SETTLED_LEAST_NS: Final = 1_000_000_000
SETTLED_MOST_NS: Final = 30_000_000_000
"""Time alone seldom changes what was confirmed."""

LATE_NS: Final = 250_000_000
LATE_NS_PER_RANK: Final = 1_000_000
LATE_INCOMPLETE_NS_PER_RANK: Final = 10_000_000
LATE_MOST_NS: Final = 10_000_000_000
"""An agent that comes so much late has little time for looks: four seconds apart for 4,000 ranks; and hardly
any for looks at a part of the evidence: ten seconds for 1,000 ranks and more."""

LATE_INCOMPLETE: Final = 32
"""While evidence is missing besides: up to so many times its lateness, a minute at most. In a job of 1,000
ranks the looks make it late; in one of ten the machine does, and nothing is gained by waiting."""

LATE_ROUND: Final = 4
"""A report passes as many queues as an answer (``pace.LATE_FACTOR``), each of them as late as this agent."""


@dataclass(frozen=True, slots=True)
class _Summary:
    """All of them. ``moved_ns``: when the rank that has been silent the longest moved last, None without
    ranks. ``ranks``: how many are told of; ``world_size``: how many there are."""

    ranks: int
    world_size: int
    moved_ns: int | None
    lives: bool
    urgent: bool


Reports = Mapping[str, tuple[NodeReport, int]]
"""By node: its report, and when it was true. Not changed: newer reports are another mapping."""


class Attention:
    """``late_ns``: how late this agent's own rounds come of late. ``gap_ns``: how far apart its
    synchronisations are, by which what is missing comes."""

    def __init__(self) -> None:
        self.late_ns = 0
        self.gap_ns = 0
        self._summed: Reports = {}
        self._sum = _Summary(0, 0, None, False, False)
        self._looked_ns: int | None = None
        self._incomplete_ns: int | None = None
        self._first_ns: int | None = None
        self._held = 0
        self._most_ns = 0
        self._complete = False

    @property
    def round_ns(self) -> int:
        """How long missing evidence may take at least, as late as this agent is."""
        return min(LATE_ROUND * self.late_ns, self._most_ns)

    def longest_ns(self, reports: Reports, now_ns: int) -> int:
        """The longest silence of any rank, the agent's own pauses included."""
        moved_ns = self._read(reports).moved_ns
        return 0 if moved_ns is None else now_ns - moved_ns

    def lives(self, reports: Reports) -> bool:
        """Some process of the job is not gone."""
        return self._read(reports).lives

    def due(
        self, reports: Reports, mine: Iterable[RankReport], timeout_ns: int, complete: bool, now_ns: int
    ) -> bool:
        """All nodes have to be looked at now. ``complete``: every node's newest report is here."""
        urgent = self._read(reports).urgent
        longest = self.longest_ns(reports, now_ns)
        if not urgent and longest < timeout_ns * STACK_SHARE:
            return False
        if not urgent and longest < timeout_ns and all(host_waits(rank) for rank in mine):
            return False
        return self.rested(reports, complete, now_ns)

    def rested(self, reports: Reports, complete: bool, now_ns: int, settled: bool = False) -> bool:
        """The last look is long enough ago, or was at less than there is now. Where evidence is missing, it
        is given as much time to come before the first look, and again whenever some of it came. ``settled``:
        a fault is confirmed, and nothing new was heard since, or only a part of what there is."""
        if complete or self._first_ns is None:
            self._first_ns = self._incomplete_ns = None if complete else now_ns
        elif len(reports) > self._held and now_ns - self._first_ns < TRICKLE_NS:
            self._incomplete_ns = now_ns
        self._held = len(reports) if complete else max(self._held, len(reports))
        last_ns = max((at for at in (self._looked_ns, self._incomplete_ns) if at is not None), default=None)
        if last_ns is None or (complete and not self._complete):
            return True
        found = self._read(reports)
        ranks, everybody = found.ranks, found.world_size or found.ranks
        self._most_ns = min(LATE_INCOMPLETE_NS_PER_RANK * ranks, LATE_MOST_NS)
        if len(reports) < 2:
            return True
        pause = PAUSE_NS_PER_RANK * ranks
        if not complete:
            usual = max(INCOMPLETE_NS, INCOMPLETE_GAPS * self.gap_ns)
            large = max(1.0, everybody / INCOMPLETE_RANKS)
            bearable = int(INCOMPLETE_NS_PER_RANK * everybody * large)
            pause = max(pause, min(usual, bearable, INCOMPLETE_MOST_NS))
        if settled:
            pause = max(pause, min(max(SETTLED_LEAST_NS, SETTLED_NS_PER_RANK * ranks), SETTLED_MOST_NS))
        if self.late_ns >= LATE_NS:
            pause = max(pause, min(LATE_NS_PER_RANK * ranks, LATE_MOST_NS))
            if not complete:
                pause = max(pause, self._most_ns, min(LATE_INCOMPLETE * self.late_ns, 6 * self._most_ns))
        return now_ns - last_ns >= pause

    def looked(self, complete: bool, now_ns: int) -> None:
        """A look was taken."""
        self._looked_ns, self._complete = now_ns, complete

    def _read(self, reports: Reports) -> _Summary:
        """Asked for several times between two changes of them."""
        if reports is not self._summed:
            self._summed = reports
            told = [report for report, _ in reports.values()]
            self._sum = _Summary(
                sum([len(report.ranks) for report in told]),
                max([report.world_size for report in told], default=0),
                min([at - report.longest_ns for report, at in reports.values()], default=None),
                any(report.lives for report in told),
                any(report.urgent for report in told),
            )
        return self._sum
