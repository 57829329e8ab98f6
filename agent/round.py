"""A round of decision: when what was found may be said (design §4 "Evidence exchange").

A round closes when all evidence is here, or at its deadline; missing nodes are evidence themselves. Other
findings are another round. Until it closes nothing is reported, so agents that hear of the same things in
another order still say the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from scoutd.agent.events import Evidence
from scoutd.agent.finding import Finding
from scoutd.agent.snapshot import Snapshot

NAMELESS = 4
"""So many times longer waits a finding that names nobody, and one on a side without a majority."""


def stacks_to_come(snapshot: Snapshot, undecided: Iterable[int]) -> bool:
    """A stack is being read that tells whether its rank waits: it may be one of those that stand still."""
    return any(
        snapshot.ranks[r].stack is None and snapshot.alive(r) and r not in snapshot.unheard for r in undecided
    )


class Round:
    """The round that is open now, if any."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._about: Hashable = None

    def closed(
        self,
        findings: Iterable[Finding],
        reach: Evidence | None,
        more: bool,
        patience_ns: int,
        now_ns: int,
    ) -> bool:
        """What was found may be said. ``reach`` is None where this node decides alone, ``more``: stacks or
        words of other nodes that belong to it are still to come. ``patience_ns``: ``round_s``, and more where
        the agent is late, for what is missing is on its way then.

        A finding that names a rank waits ``patience_ns`` at most, for stale nodes and for more. One that
        names nobody waits up to four times as long, until every node in reach has been heard of since: whom
        the missing evidence would name is not known yet. So does one without a majority.
        """
        faults = [f for f in findings if f.hold is None]
        if not faults:
            self._began_ns = None
            return True
        about = frozenset((f.cause, f.implicated and f.ranks) for f in faults)
        if self._began_ns is None or about != self._about:
            self._began_ns, self._about = now_ns, about
        lasted = now_ns - self._began_ns
        named = all(f.implicated for f in faults)
        complete = not more if named else reach is None or reach.oldest_ns <= lasted
        if complete and (reach is None or not reach.stale):
            return True
        hurry = named and (reach is None or reach.majority)
        return lasted >= patience_ns * (1 if hurry else NAMELESS)
