"""Dumps of a job → reports of its ranks at one moment, as the rules of the core read them.

A dump says less than a shim: no phase, no stack, not whether the host waits. A recorder is dumped when its
job stands still, so every rank counts as long silent, and as waiting in what it has not finished: a device
executes its calls in order, and the host stops at the next result that it needs. Ages are taken within one
dump, from its newest entry; clocks of two hosts are never compared. Where a peer shows that its unfinished
calls do not hold a rank's host (``peers``), it does not wait.

Transfers are matched by position: the k-th unfinished send of one rank to another meets the k-th unfinished
receive there. (Where both rings reach back to the start, all of them are counted.)

A dump can be older than the others: its rank has not entered a symmetric collective that others have
*finished*, which needed it. What such a rank has not done is unknown, as if its dump were missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scoutd.agent.device import SYMMETRIC
from scoutd.agent.evidence import (
    Call,
    CallKind,
    CallState,
    Coordinate,
    Fingerprint,
    GroupView,
    Members,
    NodeReport,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    Source,
    Stack,
)
from scoutd.agent.narrative import NOT_USER_CODE
from scoutd.daemon.analyze.dump import Dump, Entry
from scoutd.daemon.analyze.files import DumpFile
from scoutd.daemon.analyze.membership import Group, Layout, reconstruct
from scoutd.daemon.analyze.names import fingerprint, merged, operation, shape
from scoutd.daemon.analyze.peers import went_on
from scoutd.daemon.analyze.transfers import transfers

SILENT_NS: Final = 3600 * 1_000_000_000
"""Dumps do not tell when they were taken; longer than any limit of silence without activity."""


@dataclass(frozen=True)
class Moment:
    """``reports``: one per host. ``unknown`` ranks, with the reason: their dumps say nothing of now.
    ``newest_ns``: creation of each rank's newest entry, by its host's clock."""

    reports: tuple[NodeReport, ...]
    unknown: Mapping[int, str]
    newest_ns: Mapping[int, int]
    warnings: tuple[str, ...]


def moment(files: Sequence[DumpFile], job: str) -> Moment:
    """The moment that these dumps tell of."""
    dumps = {f.rank: f.dump for f in files if f.dump is not None}
    unread = {f.rank: f"its dump cannot be read: {f.trouble}" for f in files if f.dump is None}
    layout = reconstruct(dumps, unread)
    newest = {r: max((e.created_ns for e in dump.entries), default=0) for r, dump in dumps.items()}
    translations = {r: _Translation(r, dump, layout, dumps, newest[r]) for r, dump in dumps.items()}
    told = {rank: each.report() for rank, each in translations.items()}
    for rank, peer in went_on(layout, dumps).items():
        told[rank] = _not_waiting(told[rank], peer)
    older = _older(layout, told)
    missing = {r: unread.get(r, "there is no dump of it") for r in layout.world if r not in dumps}
    unknown = {**missing, **older}
    ranks = {r: _nothing_known(r) if r in unknown else told[r] for r in layout.world}
    warnings = [*layout.warnings, *(f"rank {r}: {why}" for r, why in sorted(older.items()))]
    return Moment(_by_host(files, ranks, job), unknown, newest, tuple(warnings))


@dataclass(frozen=True)
class _Translation:
    """One rank among the others, for the time of its translation."""

    rank: int
    dump: Dump
    layout: Layout
    dumps: Mapping[int, Dump]
    newest_ns: int

    def report(self) -> RankReport:
        groups = self.layout.of[self.rank]
        calls = [c for name, group in groups.items() for c in self._collectives(name, group)]
        calls += [c for g in groups.values() if g.transfers for c in self._transfers(g)]
        return RankReport(
            rank=self.rank,
            pid=0,
            local_rank=-1,
            device="cpu" if self._backend() == "gloo" else "cuda",
            observed=True,
            process=ProcessView(ProcessStatus.UNKNOWN),
            coordinates=(self._coordinate(),),
            silent_ns=SILENT_NS,
            calls=tuple(sorted(calls, key=lambda c: -c.age_ns)),
            groups=tuple(v for g in groups.values() if (v := self._view(g)) is not None),
        )

    def _backend(self) -> str:
        return next(
            (e.backend for d in (self.dump, *self.dumps.values()) for e in d.entries if e.backend), ""
        )

    def _transfers(self, group: Group) -> list[Call]:
        return transfers(self.rank, group, self.dumps, self.newest_ns)

    def _collectives(self, name: str, group: Group) -> list[Call]:
        """Unfinished collectives, each sequence once, and finished ones that others may not have finished."""
        by_sequence: dict[int, list[Entry]] = {}
        for entry in self.dump.entries:
            if entry.group == name and not entry.p2p:
                by_sequence.setdefault(entry.sequence, []).append(entry)
        slowest = min((p.retired for p in group.progress.values()), default=0)
        calls = [self._collective(group, s, e) for s, e in by_sequence.items() if s > slowest]
        return calls + self._unrecorded(group, by_sequence)

    def _collective(self, group: Group, sequence: int, entries: Sequence[Entry]) -> Call:
        entry, name = merged(entries)
        return Call(
            group=group.identity,
            sequence=sequence,
            kind=CallKind.COLLECTIVE,
            state=CallState.DONE if entry.retired else CallState.PENDING,
            fingerprint=fingerprint(entries, name),
            shape=shape(entries),
            age_ns=max(0, self.newest_ns - entry.created_ns),
            waiting=not entry.retired,
            source=Source.RECORDER,
        )

    def _unrecorded(self, group: Group, recorded: Mapping[int, object]) -> list[Call]:
        """Counters tell of an unfinished collective that the ring has lost, or never held."""
        progress = group.progress.get(self.rank)
        if group.transfers or progress is None or progress.retired >= progress.enqueued:
            return []
        lost = {progress.retired + 1, progress.enqueued} - recorded.keys()
        nothing = Fingerprint("", "", None, None)
        kind, state = CallKind.COLLECTIVE, CallState.PENDING
        return [
            Call(group.identity, s, kind, state, nothing, "", 0, True, Source.RECORDER) for s in sorted(lost)
        ]

    def _view(self, group: Group) -> GroupView | None:
        progress = group.progress.get(self.rank)
        if progress is None:
            return None
        judged = group.judged(self.dumps)
        members = Members(_runs(group.members)) if judged and group.members is not None else None
        label = group.description or group.name
        if group.description not in ("", "default_pg", "undefined"):
            label = f"{group.description} {group.name}"
        return GroupView(
            group=group.identity,
            name=group.name,
            description=label,
            backend=self._backend(),
            members=members,
            enqueued=progress.enqueued,
            retired=progress.retired,
            as_of_age_ns=0,
            started=progress.started,
        )

    def _coordinate(self) -> Coordinate:
        """No phase is known; the last call that it enqueued says where its program is."""
        last = max(self.dump.entries, key=lambda e: e.record, default=None)
        ordinal = last.record if last is not None else 0
        return Coordinate(0, ordinal, Phase.NONE, _after(last), SILENT_NS)


def _after(entry: Entry | None) -> str:
    """ "host code after all_reduce #7 of EMBEDDING_GROUP 44, at train.py:12 in step": as far as known."""
    if entry is None:
        return "host code"
    call = entry.operation if entry.p2p else f"{operation(entry)} #{entry.sequence}"
    text = f"host code after {call} of {entry.description or 'group'} {entry.group}".replace("  ", " ")
    frame = next((f for f in entry.frames if not any(part in f[1] for part in NOT_USER_CODE)), None)
    return text if frame is None else f"{text}, at {frame[1].rsplit('/', 1)[-1]}:{frame[2]} in {frame[0]}"


def _older(layout: Layout, told: Mapping[int, RankReport]) -> dict[int, str]:
    """Ranks whose dumps were taken before the others': the others have finished what needed them."""
    found: dict[int, str] = {}
    for group in layout.groups:
        if group.members is None or group.transfers or len(group.progress) < 2:
            continue
        least = min(p.enqueued for p in group.progress.values())
        if least >= max(p.retired for p in group.progress.values()):
            continue
        done = _finished_symmetric(group, told)
        for rank, progress in group.progress.items():
            if progress.enqueued < done:
                found[rank] = f"its dump is older than the others: they have finished #{done} of {group.name}"
    return found


def _finished_symmetric(group: Group, told: Mapping[int, RankReport]) -> int:
    """The highest sequence of a symmetric collective that some member has finished; 0 if none is known."""
    calls = (c for r in group.progress for c in told[r].calls if c.group == group.identity)
    return max(
        (
            c.sequence
            for c in calls
            if c.kind is CallKind.COLLECTIVE
            and c.state is CallState.DONE
            and c.fingerprint.operation in SYMMETRIC
        ),
        default=0,
    )


def _not_waiting(report: RankReport, peer: int) -> RankReport:
    """The host is not inside any of its unfinished calls."""
    why = f"a dump has none; rank {peer} has the same calls unfinished, and its host went on"
    calls = tuple(replace(c, waiting=False) for c in report.calls)
    return replace(report, calls=calls, stack=Stack((), 0, native=False, waits=False, refused=why))


def _nothing_known(rank: int) -> RankReport:
    return RankReport(rank, 0, -1, "", False, ProcessView(ProcessStatus.UNKNOWN))


def _by_host(files: Sequence[DumpFile], ranks: Mapping[int, RankReport], job: str) -> tuple[NodeReport, ...]:
    hosts = {f.rank: f.host for f in files}
    by_host: dict[str, list[RankReport]] = {}
    for rank, report in ranks.items():
        by_host.setdefault(hosts.get(rank, ""), []).append(report)
    return tuple(
        NodeReport(job, 0, host, 1, 1, len(ranks), tuple(reports))
        for host, reports in sorted(by_host.items())
    )


def _runs(members: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Members in group order as runs (start, stride, count)."""
    runs: list[tuple[int, int, int]] = []
    for rank in members:
        if runs:
            start, stride, count = runs[-1]
            if count == 1 and rank > start:
                runs[-1] = (start, rank - start, 2)
                continue
            if count > 1 and rank == start + stride * count:
                runs[-1] = (start, stride, count + 1)
                continue
        runs.append((rank, 1, 1))
    return tuple(runs)
