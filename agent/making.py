"""Process groups that only some ranks make: all have to call ``new_group``, members of the new group or not.

A call that some ranks left out shows late and elsewhere. Members wait for members that never come; or the
names of later groups, which torch counts, differ from rank to rank, and ranks that agree wait for ever. What
tells it is the list of groups that every rank has made, which the shim publishes as calls of a *meeting*.

A rank has *skipped* a group that others made if it is inside another wait and has not made it by then. That
is no matter of majority alone: the rule of the library says who is wrong. Only where at most half of the
group's own members called is it open whether they called too much or the others too little; then nobody is
named. Ranks that wait for nobody are roots of the wait-for graph, and judged as such before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from scoutd.agent.evidence import Call, CallState, Phase, RankReport
from scoutd.agent.finding import Finding
from scoutd.agent.meeting import EVERYBODY, OPERATIONS, members_of
from scoutd.agent.narrative import cleared, implicate, pending_text, rank_evidence, ranks_text
from scoutd.agent.silence import phase_of
from scoutd.agent.snapshot import GroupFacts, Snapshot, collectives
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, Status
from scoutd.agent.waitfor import WaitGraph


@dataclass(frozen=True, slots=True)
class Skipped:
    """``made``: who called ``operation`` with ``argument``; ``skipped``: who did not, and is elsewhere.
    ``named``: the rule tells that these are wrong. ``at``: (meeting, the first caller's sequence)."""

    at: tuple[int, int]
    operation: str
    argument: str
    members: tuple[int, ...]
    made: tuple[int, ...]
    skipped: tuple[int, ...]
    named: bool

    @property
    def call(self) -> str:
        return f"{self.operation}({self.argument.removesuffix(EVERYBODY)})"


def find(snapshot: Snapshot, graph: WaitGraph) -> Skipped | None:
    """The first group that some ranks have skipped while others wait to make one; None while some rank that
    is waited for waits for nobody."""
    if graph.roots or graph.undecided or graph.excused:
        return None
    waiting = {rank for rank, report in snapshot.ranks.items() if _waits_to_make(report)}
    for group in sorted({c.group for r in waiting for c in _made(snapshot.ranks[r])}):
        facts = snapshot.groups.get(group)
        if facts is not None and facts.members is not None:
            found = _skipped(snapshot, facts, graph.blocked | waiting)
            if found is not None:
                return found
    return None


def _waits_to_make(report: RankReport) -> bool:
    at = report.coordinate
    if at is None or not at.waiting or at.phase is not Phase.INIT:
        return False
    return any(c.waiting and c.state is CallState.PENDING for c in _made(report))


def _made(report: RankReport) -> list[Call]:
    calls = (c for c in collectives(report) if c.fingerprint.operation in OPERATIONS)
    return sorted(calls, key=lambda c: c.sequence)


def _skipped(snapshot: Snapshot, facts: GroupFacts, waiting: frozenset[int] | set[int]) -> Skipped | None:
    """The group that was made first among those that a waiting member has not made as often as others."""
    told = _told(snapshot, facts)
    if told is None:
        return None
    counts = {
        rank: Counter((c.fingerprint.operation, _argument(c)) for c in calls) for rank, calls in told.items()
    }
    most: Counter[tuple[str, str]] = Counter()
    for each in counts.values():
        most |= each
    short = {key: [r for r in counts if counts[r][key] < many] for key, many in most.items()}
    open_ = {key: ranks for key, ranks in short.items() if ranks and waiting.issuperset(ranks)}
    if not open_:
        return None
    first = {
        key: min(c.sequence for calls in told.values() for c in calls if _key(c) == key) for key in open_
    }
    key = min(open_, key=lambda k: (first[k], len(open_[k]), k))
    made = tuple(sorted(set(counts) - set(open_[key])))
    named = _wrong(key[1], made, tuple(counts))
    return Skipped((facts.group, first[key]), *key, tuple(counts), made, tuple(sorted(open_[key])), named)


def _told(snapshot: Snapshot, facts: GroupFacts) -> Mapping[int, list[Call]] | None:
    """Every member's calls; None unless all of them are known."""
    found = {}
    for rank in facts.members or ():
        report = snapshot.ranks.get(rank)
        if report is None or not report.observed or rank in snapshot.unheard:
            return None
        calls = [c for c in _made(report) if c.group == facts.group]
        view = facts.views.get(rank)
        if view is not None and view.enqueued != len(calls):
            return None
        found[rank] = calls
    return found


def _key(call: Call) -> tuple[str, str]:
    return call.fingerprint.operation, _argument(call)


def _argument(call: Call) -> str:
    return call.fingerprint.argument or ""


def _wrong(argument: str, made: tuple[int, ...], everybody: tuple[int, ...]) -> bool:
    """More than half of those who are to be in the group called; of all ranks, where they are not told."""
    members = members_of(argument) or frozenset(everybody)
    return 2 * len(members.intersection(made)) > len(members)


def finding(snapshot: Snapshot, graph: WaitGraph, found: Skipped) -> Finding:
    """COLLECTIVE_MISSING of the ranks that skipped the group, or of nobody."""
    named = found.skipped if found.named else ()
    elsewhere = {r: pending_text(snapshot, r) for r in found.skipped}
    verb = "have" if len(found.skipped) > 1 else "has"
    first = snapshot.ranks[found.skipped[0]]
    waiters = [r for r in snapshot.ranks if _waits_to_make(snapshot.ranks[r])]
    return Finding(
        cause=Cause.COLLECTIVE_MISSING,
        status=Status.ATTRIBUTED if named else Status.INCONCLUSIVE,
        scope=Scope.RANK if named else Scope.GROUP,
        summary=f"{ranks_text(found.skipped)} {verb} not called {found.call}, which {ranks_text(found.made)} "
        f"called: every rank must, in the same order{'' if named else '; nobody is named'}",
        action=Action.FIX_PROGRAM,
        anchor=f"meeting {found.at[0]:016x} call {found.at[1]} {found.argument}",
        onset_age_ns=max(snapshot.silence_ns(r) for r in waiters),
        implicated=tuple(
            implicate(snapshot, r, f"did not call {found.call}; is in {elsewhere[r]}") for r in named
        ),
        suspects=found.skipped,
        cleared=cleared(snapshot, graph, named),
        phase=phase_of(first),
        operation=elsewhere[found.skipped[0]],
        peer_group=found.members,
        evidence=(
            *(e for r in found.skipped[:16] for e in rank_evidence(snapshot, r)),
            EvidenceItem(None, "calls", f"{found.call} was called by {ranks_text(found.made)}"),
        ),
    )
