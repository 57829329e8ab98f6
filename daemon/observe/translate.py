"""Shared-memory records → evidence: the numbers of a file become what the core reads. Pure.

Stamps become ages at ``now_ns``; a stamp of the future (a torn clock read) has age 0. A phase number that
this build does not know is NONE. The calls of a report are the public ones (published before the call)
plus the Flight Recorder's unfinished collectives of its newest dump; a (group, sequence) that a public call
describes stays PUBLIC, because that one knows the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from scoutd.agent.evidence import (
    Call,
    CallKind,
    CallState,
    Coordinate,
    DeathNote,
    Fingerprint,
    Fingerprints,
    GroupView,
    Members,
    Phase,
    Source,
)
from scoutd.proto import shm

PHASES: Final[Mapping[int, Phase]] = {
    int(phase): Phase[phase.name] for phase in shm.Phase if phase.name in Phase.__members__
}
STATES: Final[Mapping[int, CallState]] = {
    int(state): CallState[state.name] for state in shm.CallState if state.name in CallState.__members__
}
KINDS: Final[Mapping[int, CallKind]] = {int(kind): CallKind[kind.name] for kind in shm.CallKind}
SOURCES: Final[Mapping[int, str]] = {int(source): source.name for source in shm.NoteSource}

MAX_MEMBERS: Final = 1 << 20
"""A group that claims more is not believed: whoever walks its members would never return."""
SETTLED_NS: Final = 500_000_000
"""A recorder retires what a host has waited for within this time."""
UNEQUAL_SIZES: Final = frozenset({"all_to_all", "all_to_all_single", "alltoall", "alltoall_base"})
"""Collectives whose sizes may legally differ between members."""


def age(now_ns: int, stamp_ns: int) -> int:
    return max(0, now_ns - stamp_ns)


def coordinates(records: Iterable[shm.Progress], now_ns: int) -> tuple[Coordinate, ...]:
    """One coordinate per writing thread."""
    return tuple(
        Coordinate(
            p.step,
            p.ordinal,
            PHASES.get(p.phase, Phase.NONE),
            p.operation,
            age(now_ns, p.entered_ns),
            bool(p.waiting),
            p.thread,
        )
        for p in records
    )


def public_calls(records: Iterable[shm.Call], now_ns: int) -> list[Call]:
    """The public calls in the order in which they were entered; free and unknown slots are left out."""
    known = (c for c in records if c.state in STATES and c.kind in KINDS)
    return [_public(c, now_ns) for c in sorted(known, key=lambda c: (c.entered_ns, c.sequence))]


def _public(c: shm.Call, now_ns: int) -> Call:
    kind = KINDS[c.kind]
    p2p = kind in (CallKind.P2P_SEND, CallKind.P2P_RECV)
    return Call(
        group=c.group,
        sequence=c.sequence,
        kind=kind,
        state=STATES[c.state],
        fingerprint=Fingerprint(c.operation, c.dtype, _comparable(c.operation, c.numel), c.argument),
        shape=c.shape,
        age_ns=age(now_ns, c.entered_ns),
        waiting=bool(c.waiting) and c.state == shm.CallState.PENDING,
        source=Source.PUBLIC,
        peer=c.peer if p2p and c.peer >= 0 else None,
        tag=c.tag if p2p else None,
        left_age_ns=age(now_ns, c.left_ns) if c.left_ns else None,
        sends=_splits(c.sends),
        receives=_splits(c.receives),
    )


def _splits(numbers: Iterable[int]) -> tuple[int | None, ...]:
    return tuple(None if n == shm.UNKNOWN_U32 else n for n in numbers)


def exchanges(records: Iterable[shm.Call], now_ns: int) -> list[Call]:
    """The finished all_to_all calls: their splits are compared even where nothing hangs."""
    return public_calls((c for c in records if c.sends and c.state == shm.CallState.DONE), now_ns)


def recorder_calls(records: Iterable[shm.Pending], dumped_ns: int, now_ns: int) -> list[Call]:
    """The unfinished collectives of the dump made at ``dumped_ns``; older dumps' leftovers are not. A dump
    that is being written while this one is read counts already."""
    return [
        Call(
            group=p.group,
            sequence=p.sequence,
            kind=CallKind.COLLECTIVE,
            state=CallState.PENDING,
            fingerprint=Fingerprint(p.operation, p.dtype, _comparable(p.operation, p.numel), None),
            shape=p.shape,
            age_ns=age(now_ns, p.created_ns),
            waiting=False,
            source=Source.RECORDER,
        )
        for p in sorted(records, key=lambda p: (p.created_ns, p.sequence))
        if p.dump_ns >= dumped_ns
    ]


def merge_calls(public: list[Call], recorder: list[Call], dump_age_ns: int) -> tuple[Call, ...]:
    """Both sources, oldest entry first, each collective once.

    A public call whose work was dropped has ended for the shim. If the recorder, ``dump_age_ns`` ago, had
    not seen it finish long after it was left, it is still under way: pending, and nobody waits in it.
    """
    unfinished = {(c.group, c.sequence) for c in recorder}
    described = {(c.group, c.sequence) for c in public if c.kind is CallKind.COLLECTIVE}
    extra = [c for c in recorder if (c.group, c.sequence) not in described]
    ours = [_reopened(c, dump_age_ns) if (c.group, c.sequence) in unfinished else c for c in public]
    return tuple(sorted(ours + extra, key=lambda c: -c.age_ns)) if extra else tuple(ours)


def _reopened(call: Call, dump_age_ns: int) -> Call:
    if call.kind is not CallKind.COLLECTIVE or call.state is not CallState.DONE or call.left_age_ns is None:
        return call
    if call.left_age_ns - dump_age_ns < SETTLED_NS:
        return call
    return replace(call, state=CallState.PENDING, left_age_ns=None)


def _comparable(operation: str, numel: int) -> int | None:
    return None if numel == shm.UNKNOWN_U64 or operation in UNEQUAL_SIZES else numel


def groups(
    identities: Mapping[int, shm.Group],
    counters: Mapping[int, shm.Counters],
    calls: Iterable[Call],
    now_ns: int,
) -> tuple[GroupView, ...]:
    """The process groups that still exist; a collective call proves that its sequence was entered."""
    entered: dict[int, tuple[int, int]] = {}
    for call in calls:
        if call.kind is CallKind.COLLECTIVE and call.sequence > entered.get(call.group, (0, 0))[0]:
            entered[call.group] = (call.sequence, call.age_ns)
    return tuple(
        _group(group, counters.get(slot), entered.get(group.group), now_ns)
        for slot, group in identities.items()
        if not group.destroyed
    )


def _group(
    group: shm.Group, counter: shm.Counters | None, entered: tuple[int, int] | None, now_ns: int
) -> GroupView:
    # A slot that was given to another group in between: its counter says nothing about this one.
    if counter is not None and counter.group != group.group:
        counter = None
    enqueued, as_of = (0, group.created_ns) if counter is None else (counter.enqueued, counter.as_of_ns)
    as_of_age = age(now_ns, as_of)
    if enqueued == shm.UNKNOWN_U64:
        enqueued = 0
    if entered is not None and entered[0] > enqueued:
        enqueued, as_of_age = entered[0], min(as_of_age, entered[1])
    retired = None if counter is None or counter.retired == shm.UNKNOWN_U64 else counter.retired
    return GroupView(
        group=group.group,
        name=group.name,
        description=group.description,
        backend=group.backend,
        members=members_of(group),
        enqueued=enqueued,
        retired=retired,
        as_of_age_ns=as_of_age,
    )


def with_histories(views: Iterable[GroupView], records: Iterable[shm.History]) -> tuple[GroupView, ...]:
    """The same groups, each with the fingerprints of its newest collectives."""
    told: dict[int, dict[int, int]] = {}
    for record in records:
        told.setdefault(record.group, {})[record.sequence] = record.fingerprint
    return tuple(
        replace(view, history=history(told[view.group], view.enqueued)) if view.group in told else view
        for view in views
    )


def history(told: Mapping[int, int], enqueued: int) -> Fingerprints | None:
    """The newest fingerprints without a gap at the end; sequences beyond ``enqueued`` are an earlier
    group's."""
    last = max((sequence for sequence in told if sequence <= enqueued), default=0)
    first = max(1, last - shm.HISTORY_DEPTH + 1)
    values = tuple(told.get(sequence) for sequence in range(first, last + 1))
    return Fingerprints(last, values) if last else None


def members_of(group: shm.Group) -> Members | None:
    """None where they did not fit into the file, or make no sense."""
    members = Members(group.runs)
    whole = not group.truncated and len(members) == group.size <= MAX_MEMBERS
    return members if whole else None


def notes(records: Iterable[shm.Note], now_ns: int) -> tuple[DeathNote, ...]:
    """The death notes, oldest first."""
    return tuple(
        DeathNote(
            SOURCES.get(n.source, "EXCEPTION"),
            n.kind,
            n.message,
            n.location,
            n.user_location,
            age(now_ns, n.at_ns),
        )
        for n in sorted(records, key=lambda n: n.at_ns)
    )
