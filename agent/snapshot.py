"""One moment of the job: the newest report of every node, with all ages brought to the same instant.

``Snapshot`` answers the questions that the rules ask about ranks and process groups and holds no rule.
Everything in it is O(memberships): a group's facts are built once from its members' own views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from operator import is_
from typing import Any, Final, TypeVar

from scoutd.agent.evidence import (
    Call,
    CallKind,
    GroupView,
    Members,
    NodeReport,
    ProcessStatus,
    ProcessView,
    RankReport,
    SeenDeath,
    Source,
)

T = TypeVar("T")

Rendezvous = tuple[int, int]
"""(group, sequence): the place where the members of a process group meet."""

# Until Python 3.12 a member of an enum costs ten times as much to look up as a name of the module.
_COLLECTIVE: Final = CallKind.COLLECTIVE
_GONE: Final = ProcessStatus.GONE


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What all members together say of one process group. ``members`` is None where nobody knows."""

    group: int
    name: str
    members: Members | None


@dataclass(frozen=True)
class Snapshot:
    """``ranks`` by global rank; ``nodes`` names each rank's node. ``heartbeat_limit_ns``: an older counter
    or heartbeat is stale. ``paused``: pauses of the agent itself, (age of the end, length) in ns, with
    which no rank is charged. ``ages``: how old each rank's report is, in ns; every age in it has grown by
    that much. Rules that compare ages of several ranks ask the snapshot, never the report. ``stale``: nodes
    whose newest report is not here: what their ranks have not done by now, or whether they still stand
    where they stood, is unknown. ``quiet``: how long ago a node was last heard of, in ns: its ranks' silence
    is proven until then. ``unplaced``: ranks that no report mentions and that must be on unreachable nodes
    without a report; ``nodes`` has the name of the only such node, or "a or b". ``seen``: by node, what it
    says of deaths elsewhere.
    """

    world_size: int
    ranks: Mapping[int, RankReport]
    nodes: Mapping[int, str]
    heartbeat_limit_ns: int
    paused: tuple[tuple[int, int], ...] = ()
    unreachable: frozenset[str] = frozenset()
    majority: bool = True
    stale: frozenset[str] = frozenset()
    ages: Mapping[int, int] = field(default_factory=dict)
    quiet: Mapping[str, int] = field(default_factory=dict)
    unplaced: frozenset[int] = frozenset()
    seen: Mapping[str, tuple[SeenDeath, ...]] = field(default_factory=dict)
    _known: dict[Callable[..., Any], Any] = field(default_factory=dict, compare=False, repr=False)
    _lasting: dict[Callable[..., Any], Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, ask: Callable[[Snapshot], T], lasting: bool = False) -> T:
        """``ask(self)``, worked out at most once: a moment does not change. ``lasting``: the answer depends
        on no age, so a later moment of the same reports may take it over."""
        known = self._lasting if lasting else self._known
        if ask not in known:
            known[ask] = ask(self)
        answer: T = known[ask]
        return answer

    def inherit(self, before: Snapshot) -> bool:
        """True if the earlier moment judged the very same reports; its lasting answers are taken over."""
        if (
            len(self.ranks) == len(before.ranks)
            and (self.unreachable, self.majority, self.stale, self.heartbeat_limit_ns)
            == (before.unreachable, before.majority, before.stale, before.heartbeat_limit_ns)
            and all(map(is_, self.ranks.values(), before.ranks.values()))
        ):
            self._lasting.update(before._lasting)
            return True
        return False

    def age_ns(self, rank: int) -> int:
        """How old this rank's report is."""
        return self.ages.get(rank, 0)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """All ranks in order."""
        return tuple(sorted(self.ranks))

    @property
    def groups(self) -> Mapping[int, GroupFacts]:
        return self.once(_groups, lasting=True)

    def views(self, group: int) -> Mapping[int, GroupView]:
        """The process group as each of its members sees it."""
        return self.once(_views, lasting=True).get(group, {})

    def view(self, rank: int, group: int) -> GroupView | None:
        """The process group as this member sees it."""
        report = self.ranks.get(rank)
        return _view(report, group) if report is not None else None

    def silence_ns(self, rank: int) -> int:
        """How long the rank has shown no progress, without the agent's own pauses; of a dead rank, how
        long it had shown none when it died; of a node that was heard of a while ago, how long it had shown
        none then. A rank is not silent because nobody hears of it."""
        return self.silences[rank]

    @cached_property
    def silences(self) -> Mapping[int, int]:
        """``silence_ns`` of every rank."""
        nodes, ages, quiet, paused = self.nodes, self.ages, self.quiet, self.paused
        found: dict[int, int] = {}
        for rank, report in self.ranks.items():
            silent, gone = report.silent_ns, report.process.gone_age_ns
            if gone is not None:
                silent -= gone
            elif quiet:
                # How long the report has been known to hold: beats say that nothing has changed.
                silent += max(0, ages.get(rank, 0) - quiet.get(nodes[rank], 0))
            else:
                silent += ages.get(rank, 0)
            found[rank] = self._charged_ns(silent) if paused or silent < 0 else silent
        return found

    def still_ns(self, rank: int) -> int:
        """How long ago the rank is known to have moved last; whether it has moved since, nobody may have
        heard. It grows alike for all ranks, so that who fell silent together stays together."""
        report = self.ranks[rank]
        gone = report.process.gone_age_ns
        return self._charged_ns(report.silent_ns + (self.age_ns(rank) if gone is None else -gone))

    def _charged_ns(self, silent: int) -> int:
        """What is left of a silence without the agent's own pauses."""
        if silent <= 0 or not self.paused:
            return max(silent, 0)
        farthest, together = self._stood_still
        if silent >= farthest:
            return max(0, silent - together)
        return max(0, silent - sum(max(0, min(silent, end + length) - end) for end, length in self.paused))

    @cached_property
    def _stood_still(self) -> tuple[int, int]:
        """How long ago the first of the agent's own pauses began, and how long they were together."""
        return max(end + length for end, length in self.paused), sum(length for _, length in self.paused)

    def gone_age_ns(self, rank: int) -> int:
        """How long the process has been gone; 0 where it lives or nobody saw it go."""
        age = self.ranks[rank].process.gone_age_ns
        return 0 if age is None else age + self.age_ns(rank)

    def alive(self, rank: int) -> bool:
        return self.ranks[rank].process.status is not _GONE

    @cached_property
    def lost(self) -> frozenset[int]:
        """Ranks of unreachable nodes whose end nobody has seen."""
        placed = (r for r, node in self.nodes.items() if node in self.unreachable and self.alive(r))
        return self.unplaced.union(placed)

    @cached_property
    def unheard(self) -> frozenset[int]:
        """Ranks of nodes that are out of reach or stale: only what they had done is known."""
        away = self.unreachable | self.stale
        if not away:
            return self.unplaced
        return self.unplaced.union(r for r, node in self.nodes.items() if node in away and self.alive(r))

    def heartbeat_silent(self, rank: int) -> bool:
        """The shim's own thread has not run for longer than the limit, and the process is alive.

        A report that grows old says nothing of heartbeats: its node would report one that falls silent.
        """
        age = self.ranks[rank].heartbeat_age_ns
        return age is not None and age > self.heartbeat_limit_ns and self.alive(rank)

    def arrived(self, rank: int, place: Rendezvous) -> bool | None:
        """Has the rank entered (group, sequence)? None: its counter is stale, or it has no shim."""
        report = self.ranks.get(rank)
        if report is None or not report.observed:
            return None
        group, sequence = place
        for call in report.calls:
            if call.sequence >= sequence and call.group == group and call.kind is _COLLECTIVE:
                return True
        view = _view(report, group)
        if view is not None and view.enqueued >= sequence:
            return True
        return None if self.heartbeat_silent(rank) or rank in self.unheard else False

    def call_at(self, rank: int, place: Rendezvous) -> Call | None:
        """The rank's own description of what it entered there, the public one if there are two."""
        group, sequence = place
        found = None
        for call in self.ranks[rank].calls:
            if call.sequence != sequence or call.group != group or call.kind is not _COLLECTIVE:
                continue
            if found is None or call.source is Source.PUBLIC:
                found = call
        return found

    def group_name(self, group: int) -> str:
        facts = self.groups.get(group)
        return facts.name if facts and facts.name else f"group {group:016x}"


def collectives(report: RankReport) -> Iterable[Call]:
    return (call for call in report.calls if call.kind is CallKind.COLLECTIVE)


def _groups(moment: Snapshot) -> Mapping[int, GroupFacts]:
    """Of each group the first name and the first members that somebody tells."""
    names: dict[int, str] = {}
    members: dict[int, Members] = {}
    complete: set[int] = set()
    for report in moment.ranks.values():
        for view in report.groups:
            group = view.group
            if group in complete:
                continue
            if not names.get(group):
                names[group] = _name(view)
            if view.members is not None:
                members.setdefault(group, view.members)
            if names[group] and group in members:
                complete.add(group)
    return {group: GroupFacts(group, name, members.get(group)) for group, name in names.items()}


def _name(view: GroupView) -> str:
    """The description that the program gave; torch calls a group without one "undefined"."""
    if not view.description and not view.name:
        return ""
    return view.description if view.description not in ("", "undefined") else f"group {view.name}"


def _view(report: RankReport, group: int) -> GroupView | None:
    found = None
    for view in report.groups:
        if view.group == group:
            found = view
    return found


def _views(moment: Snapshot) -> Mapping[int, Mapping[int, GroupView]]:
    found: dict[int, dict[int, GroupView]] = {}
    for rank, report in moment.ranks.items():
        for view in report.groups:
            found.setdefault(view.group, {})[rank] = view
    return found


def snapshot(
    reports: Iterable[tuple[NodeReport, int]],
    heartbeat_limit_ns: int,
    paused: tuple[tuple[int, int], ...] = (),
    unreachable: frozenset[str] = frozenset(),
    majority: bool = True,
    stale: frozenset[str] = frozenset(),
    quiet: Mapping[str, int] | None = None,
) -> Snapshot:
    """Joins node reports, each with its own age in ns, into one moment.

    Where two nodes claim one rank, the live process wins, then the later name. Ranks that nobody reports
    belong to unreachable nodes without a report, unless a node in reach has no report here either.
    """
    ranks: dict[int, RankReport] = {}
    nodes: dict[int, str] = {}
    ages: dict[int, int] = {}
    world = 0
    heard: set[str] = set()
    seen: dict[str, tuple[SeenDeath, ...]] = {}
    for report, age_ns in reports:
        world = max(world, report.world_size)
        heard.add(report.node)
        if report.seen:
            seen[report.node] = report.seen
        for rank in report.ranks:
            known = ranks.get(rank.rank)
            if known is not None and known.process.status is not _GONE:
                continue
            ranks[rank.rank] = rank
            nodes[rank.rank] = report.node
            ages[rank.rank] = age_ns
    unplaced: frozenset[int] = frozenset()
    if unreachable - heard and not stale - heard:
        unplaced = frozenset(range(world)).difference(ranks)
        ranks.update((rank, _unheard_of(rank)) for rank in sorted(unplaced))
        nodes.update(dict.fromkeys(unplaced, " or ".join(sorted(unreachable - heard))))
    return Snapshot(
        world,
        ranks,
        nodes,
        heartbeat_limit_ns,
        paused,
        unreachable,
        majority,
        stale,
        ages,
        quiet or {},
        unplaced,
        seen,
    )


@cache
def _unheard_of(rank: int) -> RankReport:
    """A rank of which nothing is known. One and the same object, for ``Snapshot.inherit``."""
    return RankReport(rank, 0, -1, "", False, ProcessView(ProcessStatus.UNKNOWN))
