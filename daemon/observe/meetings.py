"""Do the ranks of this node call the same things? Compared while the job runs, whether or not anybody waits.

Every rank keeps the fingerprints of its 16 newest collectives per group (HISTORY). A look reads those of a
group from all its ranks here, one after the other, and compares what they have in common. It costs nothing
where no rank has entered a collective since the last look, and at most ``MOST_GROUPS`` groups are read in one
pass. So a lasting difference is found, and a single one where the job enters no more than 16 collectives of
that group between two looks; so many are always compared at the end, when all ranks have gone.

A difference is believed only if nothing harmless explains it:

- *The newest* call of a rank is not compared while it lives: one that was refused, or a monitored barrier,
  gives its sequence to the next call. Once all ranks have ended well, there is no next call.
- *What may differ* (``agent.contested``) is known only with the call's words, which the table of calls holds.
- *A group may be made anew* under the same name, and one rank may be there before another. So a difference is
  kept for ``CONFIRM_NS``, and forgotten if the group of a rank is not the same any more.
- *Recorded* fingerprints know too little. Meetings to make a group are not collectives. Where a backend other
  than Gloo carries transfers in the group, sequences of its members are not comparable. The table of calls
  forgets transfers, so there a difference is kept for ``CONFIRM_LONG_NS``, and every look looks for some.
- *A shim that had an error* may have missed a transfer, and sequences are off from then on. One that looks
  while another thread begins a transfer numbers a call one too low: the place after it is empty then.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scoutd.agent import evidence
from scoutd.agent.contested import essence, first_difference
from scoutd.agent.evidence import (
    Call,
    CallKind,
    CallState,
    Contested,
    Fingerprints,
    ProcessStatus,
    RankReport,
)
from scoutd.daemon.observe import translate
from scoutd.daemon.observe.rank import ObservedRank
from scoutd.proto import shm

CONFIRM_NS: Final = 2_000_000_000
CONFIRM_LONG_NS: Final = 10_000_000_000
MOST_GROUPS: Final = 4
"""Read in one pass: with 8 ranks 0.2 % of a core at four passes a second, measured."""

MOST_CONTESTED: Final = 4
MOST_ESSENCES: Final = 4096
_WINDOW: Final = struct.Struct("<" + "QIIQQQ24x" * shm.HISTORY_DEPTH)
_BYTES: Final = shm.HISTORY_DEPTH * shm.HISTORY.copy_bytes
_FIELDS: Final = 6
_PAYLOAD: Final = slice(16, 16 + shm.HISTORY.codec.struct.size)

if _WINDOW.size != _BYTES or shm.HISTORY.codec.struct.size != 24:
    raise shm.LayoutError("HISTORY no longer has the fields that meetings.py reads by hand")

Window = dict[int, int]
"""Fingerprints by sequence."""


@dataclass(frozen=True)
class _Member:
    """A rank's part of a group: the slot, and what it says of the group."""

    observed: ObservedRank
    slot: int
    group: shm.Group

    @property
    def enqueued(self) -> int:
        counter = self.observed.file.counters.records.get(self.slot)
        return counter.enqueued if counter is not None and counter.group == self.group.group else 0


Members = Mapping[int, _Member]
"""By rank."""


@dataclass(frozen=True)
class _Suspicion:
    """A difference that waits to be believed. ``made``: when each rank's group was made."""

    found: Contested
    since_ns: int
    made: Mapping[int, int]


class Meetings:
    """Compares the ranks of one job. ``contested``: what is believed, at most one place per group."""

    def __init__(self) -> None:
        self.contested: tuple[Contested, ...] = ()
        self._looked: dict[int, tuple[Hashable, int]] = {}
        self._suspicions: dict[int, _Suspicion] = {}
        self._untold: set[int] = set()
        self._essences: dict[int, Hashable] = {}
        self._passes = 0

    def look(self, ranks: Mapping[int, ObservedRank], reports: Sequence[RankReport], now_ns: int) -> None:
        """One pass over what has moved; ``reports`` are of the same moment."""
        well = {r.rank: _ended_well(r) for r in reports}
        final = bool(well) and all(well.values())
        self._passes += 1
        groups = _groups(ranks)
        self._forget_others(groups)
        self._drop_incomparable(groups)
        self._complete(groups, final, now_ns)
        self._confirm(groups, final or not any(map(_lives, reports)), now_ns)
        for group in self._due(groups, final):
            self._compare(group, groups[group], final, now_ns)
        if final:
            self._confirm(groups, True, now_ns)

    def _forget_others(self, groups: Mapping[int, Members]) -> None:
        """Of groups that are not there any more nothing is remembered."""
        for group in self._looked.keys() - groups.keys():
            del self._looked[group]
        self._untold.intersection_update(groups)

    def _drop_incomparable(self, groups: Mapping[int, Members]) -> None:
        for group in list(self._suspicions):
            if not self._comparable(group, groups.get(group, {})):
                del self._suspicions[group]

    def _due(self, groups: Mapping[int, Members], final: bool) -> list[int]:
        """Groups that moved since they were looked at, the longest ago first; all of them at the end."""
        done = {each.group for each in self.contested} | self._untold | set(self._suspicions)
        moved = []
        for group, members in groups.items():
            state = (final, tuple(each.enqueued for each in members.values()))
            before = self._looked.get(group, (None, 0))
            if group not in done and before[0] != state:
                moved.append((before[1], group, state))
        moved.sort(key=lambda each: each[0])
        chosen = moved if final else moved[:MOST_GROUPS]
        for _, group, state in chosen:
            self._looked[group] = (state, self._passes)
        return [group for _, group, _ in chosen]

    def _compare(self, group: int, members: Members, final: bool, now_ns: int) -> None:
        windows = {rank: _window(each, final) for rank, each in members.items()}
        at = first_difference({r: self._essences_of(window) for r, window in windows.items()})
        if at is None or _misnumbered(windows.values(), at) or not self._comparable(group, members):
            return
        found = self._contested(group, members, windows, at, now_ns)
        if found is not None:
            made = {rank: members[rank].group.created_ns for rank, _ in found.calls}
            self._suspicions[group] = _Suspicion(found, now_ns, made)

    def _contested(
        self, group: int, members: Members, windows: Mapping[int, Window], at: int, now_ns: int
    ) -> Contested | None:
        """What the members have called at this place; None if that is not known, or is no difference."""
        calls = _described(members, windows, now_ns)
        said = {rank: calls[window[at]] for rank, window in windows.items() if window.get(at) in calls}
        self._learn(calls)
        if len(said) < sum(at in window for window in windows.values()):
            return None  # the words of a call are gone: the next look may have them
        if len({essence(call.fingerprint) for call in said.values()}) < 2 or _failed(members, group, at):
            return None
        return Contested(
            group,
            at,
            _name(members),
            _members(members),
            tuple((rank, replace(call, sequence=at)) for rank, call in said.items()),
            tuple((rank, told) for rank, w in windows.items() if (told := _history(w)) is not None),
        )

    def _complete(self, groups: Mapping[int, Members], final: bool, now_ns: int) -> None:
        """Members that had not been there yet when a difference was seen have their say in it."""
        for group, suspicion in self._suspicions.items():
            members, at = groups.get(group, {}), suspicion.found.sequence
            windows = {rank: _window(each, final) for rank, each in members.items()}
            if not any(at in windows[rank] for rank in windows.keys() - suspicion.made.keys()):
                continue
            found = self._contested(group, members, windows, at, now_ns)
            if found is not None and len(found.calls) > len(suspicion.found.calls):
                made = {rank: members[rank].group.created_ns for rank, _ in found.calls}
                since_ns = suspicion.since_ns
                self._suspicions[group] = _Suspicion(_aged(found, since_ns - now_ns), since_ns, made)

    def _confirm(self, groups: Mapping[int, Members], over: bool, now_ns: int) -> None:
        """``over``: no rank lives, so nothing more can explain a difference."""
        for group, suspicion in list(self._suspicions.items()):
            members = groups.get(group, {})
            patience_ns = CONFIRM_NS if _counts_alike(members) else CONFIRM_LONG_NS
            if not over and now_ns - suspicion.since_ns < patience_ns:
                continue
            now = [members[rank].group for rank in suspicion.made if rank in members]
            same = [each.created_ns for each in now] == list(suspicion.made.values())
            if same and not over and len({each.destroyed for each in now}) > 1:
                continue  # it is being destroyed, and perhaps made anew
            del self._suspicions[group]
            if same and len(self.contested) < MOST_CONTESTED:
                self.contested += (_aged(suspicion.found, now_ns - suspicion.since_ns),)

    def _essences_of(self, window: Window) -> dict[int, Hashable]:
        known = self._essences
        return {sequence: known.get(value, value) for sequence, value in window.items()}

    def _learn(self, calls: Mapping[int, Call]) -> None:
        """What these fingerprints mean is known from now on."""
        if len(self._essences) > MOST_ESSENCES:
            self._essences.clear()
        self._essences.update((value, essence(call.fingerprint)) for value, call in calls.items())

    def _comparable(self, group: int, members: Members) -> bool:
        """Sequences count the same on all members."""
        if any(map(_erred, members.values())):
            self._untold.add(group)
            return False
        if _counts_alike(members):
            return True
        transfers = (shm.CallKind.P2P_SEND, shm.CallKind.P2P_RECV)
        for each in members.values():
            each.observed.file.read_calls()
            if any(c.group == group and c.kind in transfers for c in _calls(each)):
                self._untold.add(group)
                return False
        return True


def _counts_alike(members: Members) -> bool:
    """The backend's sequences are free of transfers; the shim subtracts those of Gloo."""
    return all(each.group.backend.endswith("gloo") for each in members.values())


def _misnumbered(windows: Collection[Window], at: int) -> bool:
    """Some member has no call after this one, where it has later ones and others have one."""
    told = any(at + 1 in window for window in windows)
    return told and any(at in w and at + 1 not in w and max(w) > at + 1 for w in windows)


def _erred(member: _Member) -> bool:
    beat = member.observed.file.heartbeat.first()
    return beat is not None and beat.errors > 0


def _aged(found: Contested, by_ns: int) -> Contested:
    calls = ((rank, replace(call, age_ns=call.age_ns + by_ns)) for rank, call in found.calls)
    return replace(found, calls=tuple(calls))


def _ended_well(report: RankReport) -> bool:
    process = report.process
    return process.status is ProcessStatus.GONE and process.exit_code == 0


def _lives(report: RankReport) -> bool:
    return report.process.status is not ProcessStatus.GONE


def _groups(ranks: Mapping[int, ObservedRank]) -> dict[int, dict[int, _Member]]:
    """Process groups of which two ranks or more are here. Of two that a rank has under one identity, the one
    that was made last."""
    found: dict[int, dict[int, _Member]] = {}
    for rank, observed in ranks.items():
        for slot, group in observed.file.groups.records.items():
            if group.size < 2 or group.backend == "store":
                continue
            members = found.setdefault(group.group, {})
            known = members.get(rank)
            if known is None or known.group.created_ns < group.created_ns:
                members[rank] = _Member(observed, slot, group)
    return {group: members for group, members in found.items() if len(members) > 1}


def _window(member: _Member, final: bool) -> Window:
    """The settled public fingerprints in the member's history."""
    at = shm.HISTORY.offset + member.slot * _BYTES
    data = os.pread(member.observed.file.fd, _BYTES, at)
    if len(data) < _BYTES:
        raise shm.LayoutError("section HISTORY: truncated")
    words = _WINDOW.unpack(data)
    own = member.group.group
    found = {
        words[k]: words[k + 5]
        for k in range(0, len(words), _FIELDS)
        if words[k] and words[k + 3] == own and words[k + 4] == words[k] and _sound(data, words, k)
    }
    newest = max(found, default=0)
    if not final and member.enqueued <= newest:
        found.pop(newest, None)
    return {sequence: value for sequence, value in found.items() if not value & shm.RECORDED}


def _sound(data: bytes, words: tuple[int, ...], k: int) -> bool:
    start = k // _FIELDS * shm.HISTORY.copy_bytes
    payload = data[start + _PAYLOAD.start : start + _PAYLOAD.stop]
    return words[k + 2] == len(payload) and zlib.crc32(payload, words[k] & 0xFFFFFFFF) == words[k + 1]


def _described(members: Members, windows: Mapping[int, Window], now_ns: int) -> dict[int, Call]:
    """Fingerprint → a call that has it, of any rank: equal fingerprints stand for equal words."""
    wanted = {value for window in windows.values() for value in window.values()}
    found: dict[int, Call] = {}
    for member in members.values():
        member.observed.file.read_calls()
        records = [c for c in _calls(member) if c.fingerprint in wanted and c.fingerprint not in found]
        for record in records:
            found.update((record.fingerprint, call) for call in translate.public_calls([record], now_ns))
    return {value: call for value, call in found.items() if call.kind is CallKind.COLLECTIVE}


def _calls(member: _Member) -> list[shm.Call]:
    return list(member.observed.file.calls.records.values())


def _failed(members: Members, group: int, at: int) -> bool:
    """Some member's call there was left by an exception: that is judged with how it ended."""
    failed = int(shm.CallState[CallState.FAILED.value])
    return any(
        c.group == group and c.sequence == at and c.state == failed
        for member in members.values()
        for c in _calls(member)
    )


def _name(members: Members) -> str:
    told = next(iter(members.values())).group
    return told.description if told.description not in ("", "undefined") else f"group {told.name}"


def _members(members: Members) -> evidence.Members | None:
    """None where nobody knows them, and not all are here."""
    told = (translate.members_of(each.group) for each in members.values())
    known = next((each for each in told if each is not None), None)
    if known is None and all(each.group.size == len(members) for each in members.values()):
        return evidence.Members(tuple((rank, 0, 1) for rank in sorted(members)))
    return known


def _history(window: Window) -> Fingerprints | None:
    return translate.history(window, max(window, default=0))
