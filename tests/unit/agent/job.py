"""A job in words: builds the reports of its ranks for tests of the core.

``Job(4)`` is a job of four ranks on one node that all trained until a moment ago. Each method changes one
rank's evidence the way the shim and the daemon would: ``hangs``, ``waits``, ``dies``, ``stops``. Seconds
here, nanoseconds in the evidence.
"""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.core import Core
from scoutd.agent.events import Conclude, Effect, Observed, Report, Tick
from scoutd.agent.evidence import (
    Activity,
    Call,
    CallKind,
    CallState,
    Coordinate,
    DeathNote,
    Fingerprint,
    Frame,
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
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.verdict import State, Verdict

WORLD = 7
"""Identity of the default process group."""


def ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)


class Job:
    def __init__(self, world_size: int, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(stall_timeout_s=5.0)
        self.core = Core(self.settings)
        self.now = ns(1000)
        self.version = 0
        self.generation = 1
        self.groups: dict[int, tuple[str, Members]] = {WORLD: ("default_pg", Members(((0, 1, world_size),)))}
        self.ranks = {r: self._healthy(r) for r in range(world_size)}
        self.world_size = world_size

    def _healthy(self, rank: int) -> RankReport:
        view = GroupView(WORLD, "0", "default_pg", "gloo", self.groups[WORLD][1], 6, 6, ns(0.1))
        return RankReport(
            rank,
            1000 + rank,
            rank,
            "cpu",
            True,
            ProcessView(ProcessStatus.RUNNING),
            coordinates=(Coordinate(3, 60, Phase.FORWARD, "blocks.0 (Block)", ns(0.1)),),
            heartbeat_age_ns=ns(0.2),
            silent_ns=ns(0.1),
            groups=(view,),
        )

    def change(self, rank: int, **fields: object) -> None:
        self.ranks[rank] = replace(self.ranks[rank], **fields)  # type: ignore[arg-type]

    def group(self, identity: int, name: str, ranks: list[int], enqueued: int = 3) -> None:
        members = Members(tuple((r, 1, 1) for r in ranks))
        self.groups[identity] = (name, members)
        for rank in ranks:
            view = GroupView(identity, name, name, "gloo", members, enqueued, enqueued, ns(0.1))
            self.change(rank, groups=(*self.ranks[rank].groups, view))

    def at(self, rank: int, phase: Phase, operation: str, silent: float, waiting: bool = False) -> None:
        coordinate = Coordinate(3, 61, phase, operation, ns(silent), waiting)
        self.change(rank, coordinates=(coordinate,), silent_ns=ns(silent))

    def hangs(self, rank: int, phase: Phase = Phase.FORWARD, seconds: float = 6.0) -> None:
        self.at(rank, phase, "blocks.1 (Block)", seconds)
        self.stack(rank, waits=False)

    def stack(self, rank: int, waits: bool | None, native: bool = False) -> None:
        frame = Frame("forward", "/home/me/train.py", 88)
        self.change(rank, stack=Stack((frame,), ns(0.1), native, waits))

    def enqueues(self, rank: int, sequence: int, group: int = WORLD) -> None:
        views = tuple(
            replace(v, enqueued=max(v.enqueued, sequence)) if v.group == group else v
            for v in self.ranks[rank].groups
        )
        self.change(rank, groups=views)

    def waits(
        self,
        rank: int,
        sequence: int = 7,
        group: int = WORLD,
        operation: str = "all_reduce",
        numel: int | None = 64,
        seconds: float = 5.9,
        waiting: bool = True,
        source: Source = Source.PUBLIC,
        argument: str = "SUM",
        state: CallState = CallState.PENDING,
    ) -> None:
        """In a collective: ``waiting`` for a synchronous one, False for work that nobody awaits yet."""
        fingerprint = Fingerprint(operation, "float32", numel, argument if source is Source.PUBLIC else None)
        call = Call(
            group,
            sequence,
            CallKind.COLLECTIVE,
            state,
            fingerprint,
            f"[{numel}]",
            ns(seconds),
            waiting,
            source,
        )
        self.enqueues(rank, sequence, group)
        self.change(rank, calls=(*self.ranks[rank].calls, call))
        if waiting and source is Source.PUBLIC and state is CallState.PENDING:
            self.at(rank, Phase.COLLECTIVE, operation, seconds, waiting=True)
        else:
            self.at(rank, Phase.BACKWARD, "blocks.0 (Block)", seconds)

    def prefetches(self, rank: int, sequence: int, group: int) -> None:
        """An asynchronous collective in flight that does not change where the rank is."""
        call = Call(
            group,
            sequence,
            CallKind.COLLECTIVE,
            CallState.PENDING,
            Fingerprint("all_gather_into_tensor", "float32", 64, ""),
            "[64]",
            ns(6),
            False,
            Source.PUBLIC,
        )
        self.enqueues(rank, sequence, group)
        self.change(rank, calls=(*self.ranks[rank].calls, call))

    def dies(
        self,
        rank: int,
        ago: float,
        signal: int | None = None,
        code: int | None = None,
        note: tuple[str, str] | None = None,
    ) -> None:
        view = ProcessView(ProcessStatus.GONE, code, signal, ns(ago))
        self.change(rank, process=view, heartbeat_age_ns=ns(ago))
        if note is not None:
            self.notes(rank, *note, ago=ago + 0.01)

    def notes(self, rank: int, kind: str, message: str, ago: float) -> None:
        where = "train.py:12 in step"
        note = DeathNote("EXCEPTION", kind, message, where, where, ns(ago))
        self.change(rank, notes=(*self.ranks[rank].notes, note))

    def stops(self, rank: int, ago: float) -> None:
        self.change(rank, process=ProcessView(ProcessStatus.STOPPED, stopped_age_ns=ns(ago)))
        self.at(rank, Phase.FORWARD, "blocks.0 (Block)", ago)
        self.change(rank, heartbeat_age_ns=ns(ago))

    def busy(self, rank: int, cpu: float = 0.0, io: float = 0.0, moving: bool = False) -> None:
        self.change(rank, activity=Activity(ns(1), cpu, io, moving))

    def observe(self) -> list[Effect]:
        """One observation and one tick, now."""
        self.version += 1
        return self.core.step(Observed(self.report()), self.now) + self.core.step(Tick(), self.now)

    def report(self) -> NodeReport:
        ranks = tuple(self.ranks.values())
        return NodeReport("job", self.generation, "node-1", 1, self.version, self.world_size, ranks)

    def later(self, seconds: float) -> None:
        """Time passes in which no rank does anything: every age grows."""
        self.now += ns(seconds)
        for rank in self.ranks:
            self.ranks[rank] = _older(self.ranks[rank], ns(seconds))

    def run(self, seconds: float, step: float = 0.25) -> list[Verdict]:
        """Observes every ``step`` for a while; all reports, in order."""
        reports = verdicts(self.observe())
        for _ in range(int(seconds / step)):
            self.later(step)
            reports += verdicts(self.observe())
        return reports

    def conclude(self) -> list[Verdict]:
        return verdicts(self.core.step(Conclude(), self.now))


def verdicts(effects: list[Effect]) -> list[Verdict]:
    return [e.verdict for e in effects if isinstance(e, Report)]


def confirmed(reports: list[Verdict]) -> list[Verdict]:
    return [v for v in reports if v.state is State.CONFIRMED]


def implicated(verdict: Verdict) -> list[int]:
    return [i.rank for i in verdict.implicated]


def cleared(verdict: Verdict) -> dict[int, list[int]]:
    return {c.rank: list(c.waits_for) for c in verdict.cleared}


def _older(report: RankReport, by: int) -> RankReport:
    process = report.process
    return replace(
        report,
        silent_ns=report.silent_ns + by,
        heartbeat_age_ns=None if report.heartbeat_age_ns is None else report.heartbeat_age_ns,
        coordinates=tuple(replace(c, age_ns=c.age_ns + by) for c in report.coordinates),
        calls=tuple(replace(c, age_ns=c.age_ns + by) for c in report.calls),
        notes=tuple(replace(n, age_ns=n.age_ns + by) for n in report.notes),
        process=replace(
            process,
            gone_age_ns=None if process.gone_age_ns is None else process.gone_age_ns + by,
            stopped_age_ns=None if process.stopped_age_ns is None else process.stopped_age_ns + by,
        ),
    )
