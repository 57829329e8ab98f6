"""The core of one job: events in, effects out, time as an argument.

``step`` keeps the newest report of each node, brings them to one moment, lets ``localize`` judge it and the
``Ledger`` turn findings into verdicts. It also decides what the daemon should look at next: whose activity
to sample and whose stack to capture, before a verdict needs them.

A new generation of the job resets everything; reports of older generations are fenced off. If two ticks
lie further apart than ``max_gap_s``, the agent itself stood still: the gap is charged to no rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import replace

from scoutd.agent import firsts, recent, splits
from scoutd.agent.attention import STACK_SHARE, Attention
from scoutd.agent.contested import ContestedWatch
from scoutd.agent.deaths import Kind, deaths, falls, unordered
from scoutd.agent.events import (
    CaptureStack,
    Conclude,
    Effect,
    Event,
    Evidence,
    Observed,
    Report,
    SampleActivity,
    Tick,
)
from scoutd.agent.evidence import NodeReport, ProcessStatus, RankReport
from scoutd.agent.finding import Finding
from scoutd.agent.history import History
from scoutd.agent.known import Known
from scoutd.agent.lifecycle import Ledger
from scoutd.agent.localize import Diagnosis, localize
from scoutd.agent.moment import Moment
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.round import Round, stacks_to_come
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.snapshot import Snapshot, snapshot
from scoutd.agent.verdict import State, Verdict
from scoutd.agent.waitfor import build, host_waits

WATCH_SHARE = 0.25
"""Activity is sampled from this share of the stall timeout on: a window before the limit is reached."""
NATIVE_SHARE = 0.6
JUDGE_AGAIN_NS = NS_PER_S
FRESH_STACK_NS = 3 * NS_PER_S
CALM_NS = NS_PER_S // 2
"""No rank has died for this long: the end is over."""

MOST_SETTLING = 3
"""Settling times that a death waits at most while others still die."""

STACK_PATIENCE_NS = NS_PER_S // 2
"""How long a verdict waits for the stack of its rank; then it stands without."""

KEPT_MOMENTS = 16
"""Verdicts whose evidence is kept; reports are shared with the newest moment while they do not change."""


class Core:
    """Decides for one job. ``verdicts`` holds the newest state of each verdict, oldest first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ledger = Ledger(settings.history)
        self.replays = ReplayWatch(settings)
        self._contested = ContestedWatch(settings.history)
        self._reports: dict[str, tuple[NodeReport, int]] = {}
        self._local = ""
        self._own: tuple[NodeReport, int] | None = None
        self._published = False
        self._words: Hashable = None
        self._judged_words: Hashable = None
        self._reach: Evidence | None = None
        self._reached_ns = 0
        self._job = ""
        self._generation = 0
        self._last_tick_ns: int | None = None
        self._pauses: deque[tuple[int, int]] = deque(maxlen=16)
        self._sampled: tuple[int, ...] = ()
        self._asked: dict[tuple[int, bool], int] = {}
        self._patience: dict[int, int] = {}
        self._round = Round()
        self._sightings = firsts.Sightings()
        self._last_moment: Snapshot | None = None
        self._unchanged = False
        self._judged_ns = 0
        self._moments: dict[str, Moment] = {}
        self.history = History()
        self.attention = Attention()
        self.suspicious = False
        """True while some rank is past the first share of its timeout, or a death waits for judgement."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        all_of_them = (*self._ledger.verdicts, *self.replays.verdicts, *self._contested.verdicts)
        return tuple(sorted(all_of_them, key=lambda v: v.opened_ns))

    def moment(self, verdict_id: str) -> Moment | None:
        """What one of the newest verdicts was decided on; None for older ones and unknown ids."""
        return self._moments.get(verdict_id) or self.replays.moment(verdict_id)

    @property
    def _mine(self) -> tuple[RankReport, ...]:
        """This node's own ranks."""
        return self._reports[self._local][0].ranks if self._local in self._reports else ()

    @property
    def has_open(self) -> bool:
        """Something is not decided yet: an OPEN verdict or a death that waits for its judgement."""
        return self.suspicious

    def step(self, event: Event, now_ns: int) -> list[Effect]:
        """The effects of one event at monotonic time ``now_ns``, which never decreases."""
        if isinstance(event, Observed):
            return self._observed(event.report, now_ns)
        if isinstance(event, Evidence):
            return self._take_evidence(event, now_ns)
        if isinstance(event, Tick):
            return self._replayed(now_ns) + self._tick(now_ns, final=False)
        if isinstance(event, Conclude):
            effects = self._replayed(now_ns, final=True) + self._tick(now_ns, final=True)
            closing = self._ledger.conclude("the job ended first", now_ns)
            return effects + [Report(v) for v in closing]
        raise TypeError(f"not an event: {event!r}")

    def told(self, report: NodeReport, now_ns: int) -> NodeReport:
        """This node's own report, with what it has seen of deaths on other nodes."""
        return replace(report, seen=self._sightings.told(now_ns))

    def apply(self, settings: Settings) -> None:
        """New limits hold from the next tick on."""
        self._settings = settings
        self.replays.apply(settings)

    def _observed(self, report: NodeReport, now_ns: int) -> list[Effect]:
        if report.generation < self._generation:
            return []
        effects: list[Effect] = []
        if report.generation > self._generation:
            if self._reports:
                effects += self._tick(now_ns, final=True)
                effects += [Report(v) for v in self._ledger.restart(report.generation, now_ns)]
                effects += [Report(v) for v in self.replays.restart(report.generation, now_ns)]
                effects += [Report(v) for v in self._contested.restart(report.generation, now_ns)]
            self._reset(report)
        self._local = report.node
        self._own = (report, now_ns)
        self.replays.take(report, now_ns)
        if not self._published:
            self._reports = self._reports | {report.node: self._own}
        return effects + [Report(v) for v in self._contested.take(report, now_ns)]

    def _take_evidence(self, evidence: Evidence, now_ns: int) -> list[Effect]:
        """The replicated map replaces everything; reports of other generations are fenced off.

        Where this node's own report is not in the map yet, the observed one stays. All agents have the
        reports in one order, whatever the order in which they heard of each other.
        """
        self._reports = {}
        for report, age_ns in sorted(evidence.reports, key=lambda each: each[0].node):
            if report.job == self._job and report.generation == self._generation:
                self._reports[report.node] = (report, now_ns - age_ns)
                if report.replayed:
                    self.replays.take(report, now_ns, age_ns)
        self._published = self._local in self._reports
        if not self._published and self._own is not None:
            self._reports[self._local] = self._own
        self._reach, self._reached_ns = evidence, now_ns
        self._words = (evidence.unreachable, evidence.stale, tuple(r for r, _ in self._reports.values()))
        return []

    def _reset(self, report: NodeReport) -> None:
        self._job, self._generation = report.job, report.generation
        self._reports = {}
        self._asked.clear()
        self._patience.clear()
        self._round = Round()
        self._sightings = firsts.Sightings()
        self._reach = None
        self._published = False
        self._sampled = ()

    def _replayed(self, now_ns: int, final: bool = False) -> list[Effect]:
        """What replay rounds that closed by now say."""
        reports = (report for report, _ in self._reports.values())
        changed = self.replays.tick(reports, self._job, self._generation, now_ns, final)
        return [Report(v) for v in changed]

    def _tick(self, now_ns: int, final: bool) -> list[Effect]:
        self._note_pause(now_ns)
        if not self._reports:
            return []
        if not final and not self._due(now_ns):
            return self._glance(now_ns)
        moment = self._moment(now_ns)
        self.history.see(moment, self._mine)
        effects = self._watch(moment)
        judge = final or self._first_death_settled(moment)
        self._sightings.look(self._local, falls(moment), now_ns)
        if not self._worth_a_look(moment) and not self._ledger.confirmed and not judge:
            return effects + self._close_quietly(moment, now_ns)
        if self._judged_already(now_ns) and not final:
            return effects
        diagnosis = localize(moment, self._settings, judge)
        effects += self._ask_native(moment, diagnosis, now_ns)
        more = stacks_to_come(moment, diagnosis.undecided) or (judge and unordered(moment))
        patience_ns = max(int(self._settings.round_s * NS_PER_S), self.attention.round_ns)
        if not final and not self._round.closed(diagnosis.findings, self._reach, more, patience_ns, now_ns):
            return effects
        ready, asked = self._with_stacks(diagnosis, moment, now_ns, final)
        known = self._ledger.known(now_ns)
        reports = self._ledger.update(ready, moment, self._job, self._generation, now_ns)
        reports += self._contested.note(diagnosis.beside, self._ledger, self._job, self._generation, now_ns)
        self._keep(reports, moment, judge, known, now_ns)
        return effects + asked + [Report(v) for v in reports]

    def _due(self, now_ns: int) -> bool:
        """This tick has to look at all nodes."""
        complete = self._reach is None or not self._reach.stale
        timeout = int(self._settings.stall_timeout_s * NS_PER_S)
        if self._ledger.busy:
            settled = bool(self._ledger.confirmed) and (self._words == self._judged_words or not complete)
            due = self.attention.rested(self._reports, complete, now_ns, settled)
        else:
            due = self.attention.due(self._reports, self._mine, timeout, complete, now_ns)
        if due:
            self.attention.looked(complete, now_ns)
            self._judged_words = self._words
        return due

    def _glance(self, now_ns: int) -> list[Effect]:
        """Only this node's own ranks are looked at: no look at all nodes could say anything new."""
        own = self._reports.get(self._local)
        moment = self._moment_of([own] if own is not None else [], now_ns)
        self.history.see(moment, self._mine)
        if not self._ledger.busy:
            longest = self.attention.longest_ns(self._reports, now_ns)
            watch = self._settings.stall_timeout_s * WATCH_SHARE * NS_PER_S
            self.suspicious = longest >= watch and self.attention.lives(self._reports)
        return self._watch(moment) + self._ask_ahead(moment, now_ns)

    def _keep(
        self, reports: list[Verdict], moment: Snapshot, judge: bool, known: tuple[Known, ...], now_ns: int
    ) -> None:
        """What these verdicts were decided on; a later state replaces an earlier one unless it only ends."""
        for verdict in reports:
            if verdict.state in (State.OPEN, State.CONFIRMED) or verdict.id not in self._moments:
                self._moments[verdict.id] = Moment(
                    self._job,
                    self._generation,
                    tuple((report, now_ns - received) for report, received in self._reports.values()),
                    moment.paused,
                    moment.unreachable,
                    moment.majority,
                    moment.stale,
                    judge,
                    self._settings,
                    known,
                    moment.quiet,
                )
        for identity in list(self._moments)[: max(0, len(self._moments) - KEPT_MOMENTS)]:
            del self._moments[identity]

    def _close_quietly(self, moment: Snapshot, now_ns: int) -> list[Effect]:
        self._patience.clear()
        reports = self._ledger.update((), moment, self._job, self._generation, now_ns)
        return [Report(v) for v in reports]

    def _moment(self, now_ns: int) -> Snapshot:
        moment = self._moment_of(self._reports.values(), now_ns)
        self._unchanged = self._last_moment is not None and moment.inherit(self._last_moment)
        if not self._unchanged and self._reach is not None:
            recent.share(moment)
        self._last_moment = moment
        return moment

    def _moment_of(self, reports: Iterable[tuple[NodeReport, int]], now_ns: int) -> Snapshot:
        limit = int(self._settings.heartbeat_limit_s * NS_PER_S)
        paused = tuple((now_ns - end, length) for end, length in self._pauses)
        aged = [(report, now_ns - received) for report, received in reports]
        if self._reach is None:
            return snapshot(aged, limit, paused)
        r = self._reach
        since = now_ns - self._reached_ns
        heard = (report.node for report, _ in aged)
        quiet = {node: r.quiet_ns[node] + since for node in heard if node in r.quiet_ns}
        return snapshot(aged, limit, paused, r.unreachable, r.majority, r.stale, quiet)

    def _judged_already(self, now_ns: int) -> bool:
        """A fault is confirmed, and nothing new has been heard: it is judged once a second."""
        if self._unchanged and self._ledger.confirmed and now_ns - self._judged_ns < JUDGE_AGAIN_NS:
            return True
        self._judged_ns = now_ns
        return False

    def _note_pause(self, now_ns: int) -> None:
        last, self._last_tick_ns = self._last_tick_ns, now_ns
        if last is not None and now_ns - last > self._settings.max_gap_s * NS_PER_S:
            self._pauses.append((now_ns, now_ns - last))

    def _first_death_settled(self, moment: Snapshot) -> bool:
        """The first death is older than the settling time; or everybody is gone, on one node: what other
        nodes saw of the end is still on its way when their deaths are known."""
        found = [d for d in deaths(moment) if d.kind is not Kind.CLEAN]
        if not found:
            return False
        everybody = all(r.process.status is ProcessStatus.GONE for r in moment.ranks.values())
        complete = everybody and len(moment.ranks) >= moment.world_size and self._reach is None
        # Among several nodes an end that still spreads is not over: all agents shall judge the same deaths.
        spreads = self._reach is not None and min(d.age_ns for d in found) < CALM_NS
        settle = self._settings.settle_s * NS_PER_S * (MOST_SETTLING if spreads else 1)
        return complete or found[0].age_ns >= settle

    def _worth_a_look(self, moment: Snapshot) -> bool:
        watch = self._settings.stall_timeout_s * WATCH_SHARE * NS_PER_S
        longest = max((moment.silence_ns(r.rank) for r in moment.ranks.values() if r.observed), default=0)
        died = any(d.kind is not Kind.CLEAN for d in deaths(moment))
        self.suspicious = (longest >= watch and any(moment.alive(r) for r in moment.ranks)) or died
        silent = longest >= self._settings.stall_timeout_s * STACK_SHARE * NS_PER_S
        return silent or died or splits.find(moment) is not None

    def _watch(self, moment: Snapshot) -> list[Effect]:
        """Sample the activity of ranks that have been silent for a while, and of nobody else."""
        share = max(self._settings.stall_timeout_s * WATCH_SHARE, 0.5) * NS_PER_S
        silent = tuple(
            sorted(
                r.rank
                for r in self._mine
                if moment.nodes[r.rank] == self._local
                and r.observed
                and moment.alive(r.rank)
                and moment.silence_ns(r.rank) >= share
            )
        )
        if silent == self._sampled:
            return []
        self._sampled = silent
        return [SampleActivity(silent)]

    def _ask_ahead(self, moment: Snapshot, now_ns: int) -> list[Effect]:
        """Stacks of our own silent ranks that are not known to wait: they are wanted, whatever others say.
        Whoever looks at all nodes first would wait for them."""
        share = self._settings.stall_timeout_s * STACK_SHARE * NS_PER_S
        return [
            CaptureStack(r.rank, native=False)
            for r in moment.ranks.values()
            if _needs_stack(moment, r.rank)
            and host_waits(r) is None
            and moment.alive(r.rank)
            and moment.silence_ns(r.rank) >= share
            and self._ask(r.rank, False, now_ns)
        ]

    def _ask_native(self, moment: Snapshot, diagnosis: Diagnosis, now_ns: int) -> list[Effect]:
        """Stacks ahead of the verdict: Python frames of roots, native ones where the graph is undecided."""
        timeout = self._settings.stall_timeout_s * NS_PER_S
        effects: list[Effect] = []
        for rank in (r for r in diagnosis.undecided if moment.nodes[r] == self._local):
            if moment.silence_ns(rank) >= timeout * NATIVE_SHARE and self._ask(rank, True, now_ns):
                effects.append(CaptureStack(rank, native=True))
        if any(moment.silence_ns(r) >= timeout * STACK_SHARE for r in moment.ranks):
            for rank in (r for r in build(moment).roots if moment.nodes[r] == self._local):
                if moment.silence_ns(rank) >= timeout * STACK_SHARE and self._ask(rank, False, now_ns):
                    effects.append(CaptureStack(rank, native=False))
        return effects

    def _ask(self, rank: int, native: bool, now_ns: int) -> bool:
        """At most one request for a kind of stack in the time that it stays fresh."""
        last = self._asked.get((rank, native))
        if last is not None and now_ns - last < FRESH_STACK_NS * (10 if native else 1):
            return False
        self._asked[(rank, native)] = now_ns
        return True

    def _with_stacks(
        self, diagnosis: Diagnosis, moment: Snapshot, now_ns: int, final: bool
    ) -> tuple[list[Finding], list[Effect]]:
        """Findings whose ranks have a stack, or have waited for one long enough."""
        ready: list[Finding] = []
        effects: list[Effect] = []
        for finding in diagnosis.findings:
            missing = [i.rank for i in finding.implicated if _needs_stack(moment, i.rank)]
            if finding.hold is not None or final or not missing:
                ready.append(finding)
                continue
            here = [r for r in missing if moment.nodes[r] == self._local]
            effects += [CaptureStack(r, native=False) for r in here if self._ask(r, False, now_ns)]
            since = min(self._patience.setdefault(r, now_ns) for r in missing)
            if now_ns - since >= STACK_PATIENCE_NS:
                ready.append(finding)
        return ready, effects


def _needs_stack(moment: Snapshot, rank: int) -> bool:
    report = moment.ranks[rank]
    return report.process.status is ProcessStatus.RUNNING and report.observed and report.stack is None
