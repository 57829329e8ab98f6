"""Sentences and lists for people: ranges of ranks, durations, where a rank is, whom it waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from scoutd.agent.census import census
from scoutd.agent.evidence import Call, CallState, Frame, Phase, ProcessStatus, RankReport
from scoutd.agent.settings import NS_PER_S
from scoutd.agent.snapshot import Snapshot
from scoutd.agent.verdict import Cleared, EvidenceItem, Implicated
from scoutd.agent.waitfor import WaitGraph

MOST_WAITS = 32
_GONE = ProcessStatus.GONE
"""Until Python 3.12 a member of an enum costs ten times as much to look up as a name of the module."""

NOT_USER_CODE = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen")


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 2", "ranks 0, 1 and 3", "ranks 0–1022 and 1024"."""
    runs = _runs(ranks)
    texts = [f"{a}" if a == b else f"{a}–{b}" if b - a > 1 else f"{a}, {b}" for a, b in runs]
    joined = ", ".join(texts)
    head, _, tail = joined.rpartition(", ")
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {head} and {tail}" if head else f"{word} {tail}"


def _runs(ranks: Sequence[int]) -> list[tuple[int, int]]:
    ordered = sorted(set(ranks))
    breaks = [k for k in range(1, len(ordered)) if ordered[k] != ordered[k - 1] + 1]
    return [(ordered[a], ordered[b - 1]) for a, b in pairwise([0, *breaks, len(ordered)]) if a < b]


def seconds(ns: int) -> str:
    return f"{ns / NS_PER_S:.1f} s"


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code; without one, the innermost Python frame."""
    python = [frame for frame in frames if not frame.native]
    own = (f for f in python if not any(part in f.file for part in NOT_USER_CODE))
    return next(own, python[0] if python else None)


def where(report: RankReport) -> str:
    """ "FORWARD, blocks.1 (Block), at train.py:88 in forward": by coordinate and stack."""
    coordinate = report.coordinate
    text = "no published progress"
    if coordinate is not None:
        phase = "" if coordinate.phase is Phase.NONE else coordinate.phase.value
        text = ", ".join(part for part in (phase, coordinate.operation) if part) or text
    frame = user_frame(report.stack.frames) if report.stack else None
    if frame is None:
        return text
    return f"{text}, at {frame.file.rsplit('/', 1)[-1]}:{frame.line} in {frame.function}"


def pending_text(snapshot: Snapshot, rank: int) -> str:
    """ "all_reduce #7 of default_pg": the call that the rank is in, the awaited one first; or empty."""
    return _pending_texts(snapshot).get(rank, "")


def _pending_texts(snapshot: Snapshot) -> Mapping[int, str]:
    return snapshot.once(_texts, lasting=True)


def _texts(snapshot: Snapshot) -> Mapping[int, str]:
    """``pending_text`` of every rank that is in a call. Ranks in one call share the text."""
    shared: dict[tuple[object, ...], str] = {}
    found: dict[int, str] = {}
    for rank, call in census(snapshot).inside.items():
        key = (call.group, call.sequence, call.peer, call.fingerprint.operation)
        text = shared.get(key)
        if text is None:
            text = shared[key] = _call_text(snapshot, call)
        found[rank] = text
    return found


def _call_text(snapshot: Snapshot, call: Call) -> str:
    name = call.fingerprint.operation
    if call.peer is not None:
        return f"{name} with rank {call.peer}"
    return f"{name} #{call.sequence} of {snapshot.group_name(call.group)}" if call.group else name


def cleared(snapshot: Snapshot, graph: WaitGraph, implicated: Sequence[int]) -> tuple[Cleared, ...]:
    """Everybody whom the verdict acquits, each with the ranks that it waits for."""
    guilty = frozenset(implicated)
    acquittal = _Acquittal(snapshot, graph, guilty)
    others = [snapshot.ranks[rank] for rank in snapshot.numbers if rank not in guilty]
    return tuple([acquittal.of(report) for report in others])


class _Acquittal:
    """Why ranks are cleared where the ``guilty`` are named. What many ranks share is worked out once."""

    def __init__(self, snapshot: Snapshot, graph: WaitGraph, guilty: frozenset[int]) -> None:
        distinct = {id(targets): targets for targets in graph.waits_for.values()}
        short = {key: _shortened(targets, guilty) for key, targets in distinct.items()}
        self._snapshot = snapshot
        self._guilty = guilty
        self._waits = {rank: short[id(targets)] for rank, targets in graph.waits_for.items()}
        self._calls = _pending_texts(snapshot)
        self._reasons = {call: f"waits in {call}" for call in set(self._calls.values())}
        self._named: dict[int, frozenset[int]] = {}
        self._mates: dict[frozenset[int], tuple[int, ...]] = {}

    def of(self, report: RankReport) -> Cleared:
        rank = report.rank
        if not report.observed:
            away = rank in self._snapshot.unplaced
            why = "its node is out of reach" if away else "not observed: no shim in this process"
            return Cleared(rank, (), why)
        waits = self._waits.get(rank) or self._mates_of(report)
        call = self._calls.get(rank)
        if report.process.status is _GONE:
            return Cleared(rank, waits, f"ended later, in {call}" if call else "ended later")
        if call:
            return Cleared(rank, waits, self._reasons[call])
        if self._snapshot.silence_ns(rank) > NS_PER_S:
            return Cleared(rank, waits, f"in {where(report)}, nobody waits for it")
        return Cleared(rank, (), f"makes progress ({where(report)})")

    def _mates_of(self, report: RankReport) -> tuple[int, ...]:
        """The guilty members of the groups in which this rank has an unfinished call."""
        groups = frozenset([call.group for call in report.calls if call.state is not CallState.DONE])
        known = self._mates.get(groups)
        if known is None:
            mates = frozenset().union(*map(self._named_in, groups))
            known = self._mates[groups] = _shortened(tuple(sorted(mates)), self._guilty)
        return known

    def _named_in(self, group: int) -> frozenset[int]:
        known = self._named.get(group)
        if known is None:
            facts = self._snapshot.groups.get(group)
            members = facts.members if facts is not None and facts.members is not None else ()
            few, many = sorted((members, self._guilty), key=len)
            known = self._named[group] = frozenset(rank for rank in few if rank in many)
        return known


def _shortened(waits: tuple[int, ...], guilty: Collection[int]) -> tuple[int, ...]:
    """At most ``MOST_WAITS`` of them; the implicated ones stay. A verdict has a line for every rank."""
    if len(waits) <= MOST_WAITS:
        return waits
    named = [r for r in waits if r in guilty][:MOST_WAITS]
    others = [r for r in waits if r not in guilty]
    return tuple(sorted([*named, *others[: MOST_WAITS - len(named)]]))


def waiters_text(graph: WaitGraph, roots: Iterable[int]) -> str:
    """ "; ranks 0, 1 and 3 wait for it", or nothing."""
    guilty = set(roots)
    waiting = [r for r, targets in graph.waits_for.items() if targets and r not in guilty]
    if not waiting:
        return ""
    whom = "it" if len(guilty) == 1 else "them"
    return f"; {ranks_text(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for {whom}"


def nodes_text(snapshot: Snapshot, ranks: Iterable[int]) -> str:
    """ " on a, b", or nothing where the nodes are unknown."""
    return nodes_of(snapshot.nodes.get(r, "") for r in ranks)


def nodes_of(names: Iterable[str]) -> str:
    """ " on a, b", or nothing for names that are empty."""
    nodes = sorted(set(names) - {""})
    return f" on {', '.join(nodes[:4])}{' …' if len(nodes) > 4 else ''}" if nodes else ""


def implicate(snapshot: Snapshot, rank: int, reason: str) -> Implicated:
    report = snapshot.ranks[rank]
    return Implicated(rank, snapshot.nodes.get(rank, ""), report.pid, report.device, reason)


def rank_evidence(snapshot: Snapshot, rank: int) -> list[EvidenceItem]:
    """What was seen of one rank: coordinate, call, heartbeat, process, activity."""
    report = snapshot.ranks[rank]
    at = report.coordinate
    step = f"step {at.step}, " if at is not None and at.phase is not Phase.NONE else ""
    items = [EvidenceItem(rank, "coordinate", f"{step}{where(report)}")]
    if call := pending_text(snapshot, rank):
        items.append(EvidenceItem(rank, "call", call))
    if snapshot.heartbeat_silent(rank):
        items.append(EvidenceItem(rank, "heartbeat", "the shim's thread does not run: interpreter lock held"))
    if report.activity is not None:
        text = f"{report.activity.cpu_ratio:.0%} CPU, {report.activity.io_bytes_per_s:.0f} B/s I/O"
        items.append(EvidenceItem(rank, "activity", text))
    if report.stack is not None and report.stack.refused:
        items.append(EvidenceItem(rank, "stack", report.stack.refused))
    return items


def group_of(snapshot: Snapshot, graph: WaitGraph, roots: Iterable[int]) -> tuple[int, ...]:
    """Members of the first group in which a root is awaited, else all ranks."""
    guilty = set(roots)
    for place in graph.places.values():
        facts = snapshot.groups.get(place.at[0])
        late = not (guilty.isdisjoint(place.absent) and guilty.isdisjoint(place.unknown))
        if late and facts is not None and facts.members is not None:
            return tuple(facts.members)
    return snapshot.numbers
