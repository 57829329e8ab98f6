"""Process groups that only some ranks make: all have to call ``new_group``, members of the new group or not.

A call that some ranks left out shows late and elsewhere. Members wait for members that never come; or the
names of later groups, which torch counts, differ from rank to rank, and ranks that agree wait for ever. What
tells it is the list of groups that every rank has made, which the shim publishes as calls of a *meeting*.

A rank has *skipped* a group that others made if it has made one that others made after it, or if it waits
elsewhere. One that waits in an earlier group is not there yet. That is no matter of majority alone: the rule
of the library says who is wrong. Only where at most half of the group's own members called is it open whether
they called too much or the others too little; then nobody is named. Ranks that wait for nobody are roots of
the wait-for graph, and judged as such before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scoutd.agent.evidence import Call, CallState, Phase, RankReport
from scoutd.agent.finding import Finding
from scoutd.agent.meeting import EVERYBODY, OPERATIONS, members_of
from scoutd.agent.narrative import cleared, implicate, pending_text, rank_evidence, ranks_text
from scoutd.agent.silence import phase_of
from scoutd.agent.snapshot import GroupFacts, Snapshot, collectives
from scoutd.agent.verdict import Action, Cause, EvidenceItem, Scope, Status
from scoutd.agent.waitfor import WaitGraph

Key = tuple[str, str]
"""Operation and argument: which group is made."""


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
    waiting = frozenset(rank for rank, report in snapshot.ranks.items() if _waits_to_make(report))
    for group in sorted({c.group for r in waiting for c in _made(snapshot.ranks[r])}):
        facts = snapshot.groups.get(group)
        if facts is not None and facts.members is not None:
            found = _skipped(snapshot, facts, graph.blocked - waiting)
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


def _skipped(snapshot: Snapshot, facts: GroupFacts, elsewhere: frozenset[int]) -> Skipped | None:
    """The group that was made first among those that a member has left out. ``elsewhere``: ranks that wait
    for others, and not in order to make a group."""
    told = _told(snapshot, facts)
    if told is None:
        return None
    lists = {rank: [_key(c) for c in calls] for rank, calls in told.items()}
    later = _later(lists.values())
    found: list[tuple[tuple[bool, int, int, Key], tuple[int, ...], tuple[int, ...]]] = []
    for key in later:
        many = max(each.count(key) for each in lists.values())
        lacking = [rank for rank, each in lists.items() if each.count(key) < many]
        passed = [rank for rank in lacking if later[key].intersection(lists[rank])]
        ranks = passed or [rank for rank in lacking if rank in elsewhere]
        if ranks:
            first = min(c.sequence for calls in told.values() for c in calls if _key(c) == key)
            made = tuple(rank for rank in lists if rank not in lacking)
            found.append(((not passed, first, len(ranks), key), tuple(sorted(ranks)), made))
    if not found:
        return None
    (_, first, _, key), ranks_, made = min(found)
    named = _wrong(key[1], made, tuple(lists))
    return Skipped((facts.group, first), *key, tuple(lists), tuple(sorted(made)), ranks_, named)


def _later(lists: Iterable[list[Key]]) -> dict[Key, set[Key]]:
    """For each group those that some rank made after it, and that rank not before it, too."""
    found: dict[Key, set[Key]] = {}
    for each in lists:
        for k, key in enumerate(each):
            found.setdefault(key, set()).update(set(each[k + 1 :]) - set(each[: k + 1]))
    return found


def _told(snapshot: Snapshot, facts: GroupFacts) -> Mapping[int, list[Call]] | None:
    """Every member's calls; None unless all of them are known."""
    found = {}
    for rank in facts.members or ():
        report = snapshot.ranks.get(rank)
        if report is None or not report.observed or rank in snapshot.unheard:
            return None
        calls = [c for c in _made(report) if c.group == facts.group]
        view = snapshot.view(rank, facts.group)
        if view is not None and view.enqueued != len(calls):
            return None
        found[rank] = calls
    return found


def _key(call: Call) -> Key:
    return call.fingerprint.operation, call.fingerprint.argument or ""


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
