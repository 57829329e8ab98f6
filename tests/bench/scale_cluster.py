"""A cluster of thousands of real exchanges in virtual time, for ``scale_simulation``.

Every agent has its ``Exchange``; one in ``DECIDERS`` has a ``Core`` and decides in full over the evidence of
all ranks. The others hold the verdict when the digest of their evidence is one on which a decider decided:
equal evidence gives equal verdicts. A body carries as many reports as the real encoding allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from scoutd.agent.core import WATCH_SHARE, Core
from scoutd.agent.events import Evidence, Observed, Report, Tick
from scoutd.agent.evidence import NodeReport
from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import (
    Columns,
    Mark,
    Outgoing,
    Probe,
    ProbeReply,
    Push,
    Relay,
    Reply,
    Request,
    Sync,
    SyncReply,
)
from scoutd.agent.replica import Replica
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.agent.verdict import State
from scoutd.daemon.peer import messagecodec, reportcodec
from tests.bench.hungjob import HungJob, NodeObserver
from tests.simulation.network import Answer, Network, Weather
from tests.simulation.timeline import Timeline, ns

STALL_S = 5.0
HUNG_S = 1.0
ROUND_S = 0.1
DECIDERS = 20

M = TypeVar("M")


@dataclass(frozen=True)
class Sizes:
    """Bytes, by the real encoding: of a mark, of a node in columns of all and of some nodes, and of a report
    of eight ranks."""

    mark: int
    row: int
    some: int
    report: int

    @property
    def reports_in_a_body(self) -> int:
        return messagecodec.BLOB_BYTES // self.report

    def of(self, message: Request | Reply) -> int:
        """Roughly the encoded size; headers and seals are left out."""
        if isinstance(message, Probe | ProbeReply):
            return len(message.marks) * self.mark
        if isinstance(message, Sync | SyncReply):
            told = message.columns
            each = 0 if told is None else self.row if told.at is None else self.some
            rows = len(told.version) * each if told is not None else 0
            blobs = message.blobs if isinstance(message, SyncReply) else ()
            return rows + len(message.marks) * self.mark + len(blobs) * (self.mark + self.report)
        return len(message.blobs) * (self.mark + self.report) if isinstance(message, Push) else 8


def sizes() -> Sizes:
    job = HungJob(2048, lambda: ns(100), hung_ns=ns(94))
    report = NodeObserver(job, 5).observe()[0].report
    marks = tuple(
        Mark(f"node-{k:04d}", f"10.0.{k}.250:4000", 1, 40000, 40000, 40000) for k in range(100, 200)
    )
    rows = ((40000,) * 100,) * 3
    told = (Columns(1, *rows), Columns(1, *rows, tuple(range(1000, 1100))))
    mark, row, some = (
        len(messagecodec.encode(sync)) // 100
        for sync in (Sync(marks, 1), *(Sync((), 1, (), each) for each in told))
    )
    return Sizes(mark, row, some, len(reportcodec.encode_report(report)))


@dataclass
class Agent:
    """``core`` is None for agents that compare digests. ``done_ns``: when it held the verdict."""

    cluster: Cluster
    node: str
    exchange: Exchange
    observer: NodeObserver
    core: Core | None
    listening: bool = True
    published: str = ""
    complete_ns: int | None = None
    done_ns: int | None = None

    def deliver(self, request: Request, answer: Answer) -> None:
        cluster = self.cluster
        if isinstance(request, Relay):
            raise AssertionError("nobody is out of reach here")
        cluster.sent_bytes += cluster.sizes.of(request)
        reply = cluster.bounded(self.exchange.handle(cluster.bounded(request), cluster.timeline.now_ns))
        cluster.sent_bytes += cluster.sizes.of(reply)
        answer(reply)

    def round(self) -> None:
        cluster, now = self.cluster, self.cluster.timeline.now_ns
        if now >= cluster.suspicious_ns:
            self.exchange.alarm(now)
            self._publish(now)
        self._send(self.exchange.tick(now))
        if self.complete_ns is None and self._complete(now):
            self.complete_ns = now
        if self.done_ns is None and now >= cluster.due_ns:
            self._decide(now)
        cluster.timeline.after(ROUND_S * cluster.random.uniform(0.95, 1.1), self.round)

    def _complete(self, now: int) -> bool:
        return now >= self.cluster.suspicious_ns and not self.exchange.stale(now)

    def _publish(self, now: int) -> None:
        """When suspicion begins; the culprit's node once more, with its stack."""
        halfway = now >= (self.cluster.suspicious_ns + self.cluster.due_ns) // 2
        state = "stack" if halfway and self.observer is self.cluster.culprits_node else "stall"
        if self.published == state:
            return
        self.published = state
        if state == "stack":
            self.observer.captured(self.cluster.job.culprit)
        report = self.observer.observe()[0].report
        self.exchange.replica.publish(self.cluster.encode(report), now)

    def _decide(self, now: int) -> None:
        if self.core is None:
            if self.exchange.replica.digest() in self.cluster.decided:
                self.done_ns = now
        elif not self.exchange.stale(now):
            self._judge(self.core, now)

    def _judge(self, core: Core, now: int) -> None:
        table = self.cluster.table
        held = self.exchange.replica.reports()
        reports = tuple((table[data], now - at) for data, _, at in held.values())
        core.step(Observed(table[held[self.node][0]]), now)
        core.step(Evidence(reports, frozenset(self.exchange.unreachable), True), now)
        said = [e.verdict for e in core.step(Tick(), now) if isinstance(e, Report)]
        named = [[i.rank for i in v.implicated] for v in said if v.state is State.CONFIRMED]
        if named:
            assert named == [[self.cluster.job.culprit]]
            self.done_ns = now
            self.cluster.decided.add(self.exchange.replica.digest())

    def _send(self, sent: list[Outgoing]) -> None:
        for out in sent:
            self.cluster.network.send(self.node, out, self._replied(out), self._failed(out))

    def _replied(self, out: Outgoing) -> Answer:
        return lambda reply: self._send(self.exchange.on_reply(out, reply, self.cluster.timeline.now_ns))

    def _failed(self, out: Outgoing) -> Callable[[], None]:
        return lambda: self._send(self.exchange.on_failure(out, self.cluster.timeline.now_ns))


class Cluster:
    """``nodes`` agents that know each other; one rank of the middle node hangs at ``HUNG_S``."""

    def __init__(self, nodes: int, seed: int, how_large: Sizes) -> None:
        self.timeline = Timeline()
        self.random = random.Random(seed)
        self.sizes = how_large
        self.network = Network(self.timeline, random.Random(seed + 1), Weather())
        self.job = HungJob(nodes, lambda: self.timeline.now_ns + ns(100), hung_ns=ns(100 + HUNG_S))
        self.suspicious_ns = ns(HUNG_S + STALL_S * WATCH_SHARE)
        self.due_ns = ns(HUNG_S + STALL_S)
        self.table: dict[bytes, NodeReport] = {}
        self.decided: set[str] = set()
        self.sent_bytes = 0
        full = set(self.random.sample(range(nodes), max(2, nodes // DECIDERS)))
        self.agents = [self._agent(k, k in full, seed) for k in range(nodes)]
        self.culprits_node = self.agents[nodes // 2].observer
        marks = tuple(a.exchange.replica.mine for a in self.agents)
        for agent in self.agents:
            agent.exchange.replica.merge_marks(marks, 0)
            self.network.endpoints[agent.exchange.replica.mine.address] = agent
            self.timeline.after(self.random.uniform(0, ROUND_S), agent.round)

    def _agent(self, k: int, full: bool, seed: int) -> Agent:
        observer = NodeObserver(self.job, k)
        replica = Replica(observer.name, f"10.0.{k // 250}.{k % 250}:4000", 1)
        exchange = Exchange(replica, ExchangeSettings(), random.Random(seed * 100_003 + k))
        core = Core(Settings(stall_timeout_s=STALL_S)) if full else None
        return Agent(self, observer.name, exchange, observer, core)

    def encode(self, report: NodeReport) -> bytes:
        key = len(self.table).to_bytes(8, "big")
        self.table[key] = report
        return key

    def bounded(self, message: M) -> M:
        """The message with as many reports as fit into a body."""
        most = self.sizes.reports_in_a_body
        if isinstance(message, SyncReply) and len(message.blobs) > most:
            return replace(message, blobs=message.blobs[:most])
        if isinstance(message, Push) and len(message.blobs) > most:
            return replace(message, blobs=message.blobs[:most])
        return message

    def run(self, deadline_s: float) -> None:
        everybody = iter(self.agents)
        waiting = [next(everybody)]

        def all_done() -> bool:
            while waiting[0].done_ns is not None:
                following = next(everybody, None)
                if following is None:
                    return True
                waiting[0] = following
            return False

        self.timeline.run_until(deadline_s, all_done)
