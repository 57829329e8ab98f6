"""The words of a confirmed verdict follow the evidence, until all agents use the same.

Agents confirm a verdict at different moments, each on what it has heard by then: who waits, who has ended
since, where exactly a rank stands. Its id depends on none of that. While the event goes on, every look at
complete evidence words the verdict anew, and since all agents come to hold the same evidence, all come to say
the same. State and times stay as they were. Two looks do not count: one that knows less of the named ranks
(a stack has expired), and one at what is left after the ranks were ended.
"""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.finding import Finding
from scoutd.agent.settings import NS_PER_S
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Verdict

PAUSE_NS = NS_PER_S
"""Between two wordings: deaths and stacks come in one by one, and every wording is written down."""


def living(finding: Finding, snapshot: Snapshot) -> frozenset[int]:
    """The ranks that the finding names and nobody saw end."""
    return frozenset(i.rank for i in finding.implicated if snapshot.alive(i.rank))


def reworded(old: Verdict, new: Verdict) -> Verdict | None:
    """The old verdict in the words of the new one; None where they say the same or the new one knows less."""
    named = {each.rank for each in new.implicated}
    if _words(old) == _words(new) or not named & _stacked(old) <= _stacked(new):
        return None
    return replace(
        new,
        opened_ns=old.opened_ns,
        confirmed_ns=old.confirmed_ns,
        onset_ns=old.onset_ns,
        detection_latency_ns=old.detection_latency_ns,
    )


def _words(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.summary,
        verdict.implicated,
        verdict.cleared,
        verdict.phase,
        verdict.operation,
        verdict.action,
        verdict.scope,
    )


def _stacked(verdict: Verdict) -> set[int]:
    return {each.rank for each in verdict.stacks if each.stack.frames}
