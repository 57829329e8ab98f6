"""One agent's part in one job: its core and its exchange, joined.

While the job is healthy nothing but probes leaves the node, and the core reads this node's own report. Once
some core is suspicious the reports are exchanged, and every core, the own node's included, judges the
replicated map: all agents read the same words and reach the same verdict. The daemon and the simulation
drive the same class; both bring time, randomness and the network.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from scoutd.agent.content import content, rounded
from scoutd.agent.core import Core
from scoutd.agent.disputes import Disputes
from scoutd.agent.events import Conclude, Effect, Evidence, Observed, Tick
from scoutd.agent.evidence import NodeReport, ProcessStatus
from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Outgoing, Relay, RelayReply, Reply, Request
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.verdict import Verdict

LEFT_NS: Final = 3 * NS_PER_S
"""Longer than deaths are collected. A job whose files have been gone for that long is over here."""

CALM_NS: Final = NS_PER_S

TOLD_NS_PER_NODE: Final = 2_000_000
TOLD_NODES: Final = 128
TOLD_MOST_NS: Final = 2 * NS_PER_S
TOLD_LATE: Final = 8
LATE_NS_PER_NODE: Final = 10_000_000
"""How often the core hears of a map without news, and of one in which reports are missing: it costs a
microsecond or two per node. Beyond ``TOLD_NODES`` it is told so seldom that it costs ever less of a core, up
to ``TOLD_MOST_NS``; by an agent that is late more seldom still, up to eight times its lateness."""

Encode = Callable[[NodeReport], bytes]
Decode = Callable[[bytes], NodeReport]
"""Raises ValueError for bytes that are no report; such a report is ignored."""


class Party:
    """``suspicious``: this node should look more often. ``garbled`` counts reports that did not decode."""

    def __init__(self, settings: Settings, exchange: Exchange, encode: Encode, decode: Decode) -> None:
        self.core: Final = Core(settings)
        self.exchange = exchange
        self.garbled = 0
        self._settings = settings
        self._encode: Final = encode
        self._decode: Final = decode
        self._published: Hashable = None
        self._published_ns = 0
        self._told_replays: Hashable = ()
        self._disputes = Disputes()
        self._sharing = False
        self._last: NodeReport | None = None
        self._observed_ns = 0
        self._decoded: dict[str, tuple[bytes, NodeReport | None]] = {}
        self._told: tuple[int, int, frozenset[str]] = (-1, 0, frozenset())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.core.verdicts

    @property
    def suspicious(self) -> bool:
        return self.core.suspicious

    @property
    def ended(self) -> bool:
        """Every rank of the job is known to be gone, by this node's word or another's; or its node is out of
        reach, and nothing will be heard of it."""
        reports = {node: report for node, (_, report) in self._decoded.items() if report is not None}
        away = self.exchange.unreachable
        over = {
            rank.rank
            for node, report in reports.items()
            for rank in report.ranks
            if rank.process.status is ProcessStatus.GONE or node in away
        }
        return bool(reports) and len(over) >= max(report.world_size for report in reports.values())

    def apply(self, settings: Settings) -> None:
        self._settings = settings
        self.core.apply(settings)

    def renew(self, exchange: Exchange) -> None:
        """The job began a new generation: what was exchanged before it is no evidence any more. The core
        notices by itself, from this node's own reports."""
        self.exchange = exchange
        self._disputes = Disputes()
        self._published = None
        self._sharing = False
        self._told = (-1, 0, frozenset())
        self._decoded.clear()

    def observe(self, report: NodeReport, now_ns: int) -> list[Effect]:
        """This node's own report. It is published when it has to be and says something new."""
        effects = self.core.step(Observed(report), now_ns)
        report = self.core.told(report, now_ns)
        self._last, self._observed_ns = report, now_ns
        self.exchange.replica.expect(report.world_size)
        if self.core.suspicious:
            self.exchange.alarm(now_ns)
        if not self.exchange.replica.alone:
            alarmed = self.exchange.alarmed(now_ns)
            self._disputes.look(report, self.exchange.tallies, self.core.replays, alarmed, now_ns)
            if self._disputes.rounds:
                self.exchange.alarm(now_ns)
            if self.exchange.alarmed(now_ns):
                self._publish(report, now_ns)
        return effects

    def _publish(self, report: NodeReport, now_ns: int) -> None:
        """The report is published if it says something new. Under a dispute alone ranks go on training: their
        progress is no news then, and is told once a second."""
        words = self._disputes.words(report)
        said = content(words, int(self._settings.heartbeat_limit_s * NS_PER_S))
        told = tuple(rank.replays for rank in words.ranks)
        calm = not self.core.suspicious and told == self._told_replays
        if said == self._published or (calm and now_ns - self._published_ns < CALM_NS):
            return
        data = self._encode(rounded(words))
        self._published, self._told_replays, self._published_ns = said, told, now_ns
        self.exchange.replica.publish(data, now_ns)

    def tick(self, now_ns: int) -> tuple[list[Effect], list[Outgoing]]:
        """Time has passed: what to do here, and what to send. A job that is over here is not judged any more:
        its last reports, and even more so its own alone, do not get truer."""
        effects: list[Effect] = []
        if now_ns - self._observed_ns > LEFT_NS:
            return effects, self.exchange.tick(now_ns)
        if not self.exchange.replica.alone and self.exchange.alarmed(now_ns):
            self._sharing = True
            if self._worth_telling(now_ns):
                evidence = self._evidence(now_ns)
                self._disputes.hear((each for each, _ in evidence.reports), self.core.replays, now_ns)
                effects += self.core.step(evidence, now_ns)
        elif self._sharing:
            # What peers said then is no evidence now: their ranks move on unreported, and so do mine.
            self._sharing = False
            self.exchange.replica.retract(now_ns)
            self._published = None
            self._told = (-1, 0, frozenset())
            effects += self.core.step(Evidence((), frozenset(), True), now_ns)
        attention, pace = self.core.attention, self.exchange.pace
        attention.late_ns, attention.gap_ns = pace.late_ns, pace.gap_ns
        effects += self.core.step(Tick(), now_ns)
        return effects, self.exchange.tick(now_ns)

    def conclude(self, now_ns: int) -> list[Effect]:
        return self.core.step(Conclude(), now_ns)

    def depart(self, now_ns: int) -> list[Outgoing]:
        """The job is over on this node: the farewell to its peers, with how its ranks ended."""
        if self._last is not None:
            self.exchange.replica.publish(self._encode(rounded(self._last)), now_ns)
        return self.exchange.depart(now_ns)

    def handle(self, request: Request, now_ns: int) -> Reply:
        """The answer to a peer; a Relay is answered through ``relay`` and ``relayed``."""
        return self.exchange.handle(request, now_ns)

    def relay(self, request: Relay, now_ns: int) -> Outgoing:
        return self.exchange.relay(request, now_ns)

    def relayed(self, reply: Reply | None) -> RelayReply:
        return self.exchange.relayed(reply)

    def on_reply(self, sent: Outgoing, reply: Reply, now_ns: int) -> list[Outgoing]:
        return self.exchange.on_reply(sent, reply, now_ns)

    def on_failure(self, sent: Outgoing, now_ns: int) -> list[Outgoing]:
        return self.exchange.on_failure(sent, now_ns)

    def _worth_telling(self, now_ns: int) -> bool:
        """The map has changed, or so much time has passed that somebody may have fallen silent in it. In a
        large job, while reports are missing, not every change by itself: it costs microseconds per node."""
        exchange = self.exchange
        news, at_ns, unreachable = self._told
        nodes = len(exchange.replica.entries)
        pause = min(int(nodes * TOLD_NS_PER_NODE * max(1.0, nodes / TOLD_NODES)), TOLD_MOST_NS)
        pause = max(pause, min(nodes * LATE_NS_PER_NODE, TOLD_LATE * exchange.pace.late_ns))
        patience = max(exchange.pace.slowest_ns(nodes) // 2, pause)
        away = frozenset(exchange.unreachable)
        since = now_ns - at_ns
        if news == exchange.replica.news and unreachable == away and since < patience:
            return False
        if unreachable == away and since < pause and exchange.replica.missing:
            return False
        self._told = (exchange.replica.news, now_ns, away)
        return True

    def _evidence(self, now_ns: int) -> Evidence:
        reports = []
        replica = self.exchange.replica
        quiet = replica.quiet(now_ns)
        for entry in replica.held():
            report = self._decode_once(entry.node, entry.data or b"")
            if report is not None:
                reports.append((report, now_ns - entry.reported_ns))
        exchange = self.exchange
        stale = exchange.stale(now_ns)
        return Evidence(
            tuple(reports),
            frozenset(exchange.unreachable),
            exchange.majority(stale),
            stale,
            exchange.oldest_ns(now_ns, stale),
            quiet,
        )

    def _decode_once(self, node: str, data: bytes) -> NodeReport | None:
        known = self._decoded.get(node)
        if known is None or known[0] is not data:
            try:
                report: NodeReport | None = self._decode(data)
            except ValueError:
                report = None
                self.garbled += 1
            known = self._decoded[node] = (data, report)
        return known[1]
