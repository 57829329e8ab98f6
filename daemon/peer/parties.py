"""The parties of this agent: one per job, driven by the main loop, heard by the Peer service.

``JobParty`` is the loop's core of a job: what the loop tells it goes to the core and the exchange, and what
the exchange wants sent becomes a task. Each task brings back its reply or its failure exactly once, unless
the job has begun a new generation meanwhile: then nobody is interested any more.

An agent takes part in the exchange of a job once two things are known: that the job has ranks elsewhere, and
a key of the job. Until then it hears nobody and judges what it sees alone, which for a job on one node is
the whole truth.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from scoutd.agent.events import Conclude, Effect, Event, Observed, Tick
from scoutd.agent.exchange import Exchange
from scoutd.agent.history import History
from scoutd.agent.messages import Layout, LayoutReply, Order, OrderReply, Outgoing, Relay, Reply, Request
from scoutd.agent.moment import Moment
from scoutd.agent.party import Party
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.replica import Replica
from scoutd.agent.settings import NS_PER_S, ExchangeSettings, Settings
from scoutd.agent.verdict import Verdict
from scoutd.daemon.errors import PeerError
from scoutd.daemon.log import logger
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.reportcodec import decode_report, encode_report
from scoutd.daemon.peer.seal import Membership

UNREACHED_AFTER: Final = 20
"""Requests that went well while nobody ever spoke to us: our address does not reach us. A healthy peer
probes us about as often as we probe others."""

JOIN_NS: Final = 10 * NS_PER_S
"""How long a new party waits for the first peer before it judges alone; seeds come within 5 s."""

SILENT_NS: Final = NS_PER_S
"""A party that joins while a rank of its own has been silent this long asks for evidence before it judges."""

UNCHANGED_NS: Final = NS_PER_S // 2
KEY_PATIENCE_NS: Final = 20 * NS_PER_S
"""The job's key comes through the store, seconds after the job is seen; a later one is worth a warning."""

MAX_TASKS: Final = 128

ORDER_NS: Final = 2 * NS_PER_S
ORDERS_AT_ONCE: Final = 32
ORDERS_S: Final = 3.0
"""Ranks agree on a step two seconds ahead: who is told later than that does not take part. 500 agents can be
told in that time."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """What is known of a job's other agents. ``shared``: the job has ranks that this agent does not see.
    ``keys``: that prove membership, the preferred first. ``seeds``: addresses to join through."""

    generation: int
    shared: bool = False
    keys: tuple[bytes, ...] = ()
    seeds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of the job as this one sees it: ALIVE, UNREACHABLE, or LEFT once the job is over there.
    ``heard_ago_ns`` is 0 for this agent itself."""

    node: str
    address: str
    incarnation: int
    state: str
    heard_ago_ns: int
    me: bool


@dataclass
class Station:
    """What all parties of an agent share. ``address`` is empty while no peer could reach us."""

    node: str
    incarnation: int
    client: PeerClient
    clock: Callable[[], int]
    wake: Callable[[], None]
    failed: Callable[[Exception], None]
    carry_out: Callable[[str, Order], OrderReply] = lambda job, order: OrderReply((), ())
    """Has the ranks of a job here replay."""
    layout: Callable[[str], bytes] = lambda job: b""
    """What is seen here of a job's layout."""
    address: str = ""
    late_ns: int = 0
    """How late the main loop's last round came."""


class JobParty:
    """One job's core and exchange, with the network. ``suspicious``: look more often."""

    def __init__(self, job: str, settings: Settings, exchange: ExchangeSettings, station: Station) -> None:
        self.job: Final = job
        self.asked_well = 0
        self.answered = 0
        self.departed_ns = 0
        self._station: Final = station
        self._knobs = exchange
        self._party: Final = Party(settings, self._new_exchange(), encode_report, decode_report)
        self._meeting = Rendezvous(0)
        self._keyless_ns = 0
        self._member: Membership | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._myself: Final[set[str]] = set()
        self._namesake = ""
        self._digest = ("", 0)
        self._joined = False
        self._silent_ns = 0
        self._met_ns: Final = station.clock()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self._party.verdicts

    @property
    def suspicious(self) -> bool:
        return self._party.suspicious or self.exchange.alarmed(self._station.clock())

    @property
    def member(self) -> Membership | None:
        return self._member

    @property
    def exchange(self) -> Exchange:
        return self._party.exchange

    @property
    def settled(self) -> bool:
        """A last judgement need not wait: nothing is suspected; or every rank of the job is known to be gone,
        and for a few rounds of the exchange nobody had anything new to say about it."""
        if self._member is None or not self._party.suspicious:
            return True
        now, digest = self._station.clock(), self.exchange.replica.digest()
        if digest != self._digest[0]:
            self._digest = (digest, now)
        return self._party.ended and now - self._digest[1] >= UNCHANGED_NS

    @property
    def garbled(self) -> int:
        """Reports of others that did not decode."""
        return self._party.garbled

    def apply(self, settings: Settings) -> None:
        self._party.apply(settings)

    def moment(self, verdict_id: str) -> Moment | None:
        """See ``agent.core.Core.moment``."""
        return self._party.core.moment(verdict_id)

    @property
    def history(self) -> History:
        return self._party.core.history

    @property
    def replays(self) -> ReplayWatch:
        return self._party.core.replays

    def meet(self, meeting: Rendezvous) -> None:
        """What the job's shims and the configuration say about its other agents is known."""
        if not meeting.shared or meeting.keys:
            self._keyless_ns = 0
        elif not self._keyless_ns:
            self._keyless_ns = self._station.clock()
        if meeting != self._meeting:
            if meeting.generation > self._meeting.generation > 0:
                self._party.renew(self._new_exchange())
            self._meeting = meeting
            joined = meeting.shared and bool(meeting.keys)
            self._member = (
                Membership(self.job, meeting.generation, self._station.node, meeting.keys) if joined else None
            )
        self._settle()

    def step(self, event: Event, now_ns: int) -> list[Effect]:
        """The loop's events; see ``agent.core.Core.step``."""
        if isinstance(event, Observed):
            self._silent_ns = max((rank.silent_ns for rank in event.report.ranks), default=0)
            return self._party.observe(event.report, now_ns)
        if isinstance(event, Tick):
            self.exchange.pace.late(self._station.late_ns)
            if self._judges_too_early(now_ns):
                self._send(self.exchange.tick(now_ns))
                return []
            effects, outgoing = self._party.tick(now_ns)
            self._send(outgoing)
            return effects
        if isinstance(event, Conclude):
            return self._party.conclude(now_ns)
        raise TypeError(f"not an event of the loop: {event!r}")

    def _judges_too_early(self, now_ns: int) -> bool:
        """The job has ranks elsewhere, and nobody who sees them was found yet, but may be soon. An agent that
        starts in the middle of a hang would confirm what half of the evidence says."""
        if self._joined or not self._meeting.shared:
            return False
        if self.exchange.peers and self._silent_ns >= SILENT_NS:
            self.exchange.alarm(now_ns)
        self._joined = bool(self.exchange.peers) or now_ns - self._met_ns >= JOIN_NS
        return not self._joined

    async def answer(self, request: Request) -> Reply:
        """The reply to an authentic request of a member."""
        self.answered += 1
        if isinstance(request, Relay):
            return self._party.relayed(await self._relay(request))
        if isinstance(request, Order):
            return self._station.carry_out(self.job, request)
        if isinstance(request, Layout):
            return LayoutReply(self._station.layout(self.job))
        now = self._station.clock()
        quiet = not self.exchange.alarmed(now)
        reply = self._party.handle(request, now)
        if quiet and self.exchange.alarmed(now):
            self._station.wake()
        return reply

    async def order(self, order: Order) -> dict[str, OrderReply | None]:
        """What every other agent of the job did with the order; None where it could not be told in time."""
        replies = await self._ask_all(order)
        return {node: each if isinstance(each, OrderReply) else None for node, each in replies.items()}

    async def layouts(self) -> dict[str, bytes | None]:
        """What every other agent of the job sees of its layout; None where it did not tell in time."""
        replies = await self._ask_all(Layout())
        told = {node: each.topology for node, each in replies.items() if isinstance(each, LayoutReply)}
        return {node: told.get(node) for node in replies}

    async def _ask_all(self, request: Request) -> dict[str, Reply | None]:
        """Every other agent's answer, by node; None where there was none in time. Those that are out of reach
        come last: they would use up the time of the others."""
        turns = asyncio.Semaphore(ORDERS_AT_ONCE)
        members = [m for m in self.members(self._station.clock()) if not m.me and m.state != "LEFT"]
        members.sort(key=lambda member: member.state == "UNREACHABLE")

        async def one(member: Member) -> Reply | None:
            async with turns:
                return await self._ask(Outgoing(member.node, member.address, request, ORDER_NS))

        tasks = {member.node: asyncio.ensure_future(one(member)) for member in members}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=ORDERS_S)
        for task in tasks.values():
            task.cancel()
        ended = {node: task for node, task in tasks.items() if task.done() and not task.cancelled()}
        return {node: ended[node].result() if node in ended else None for node in tasks}

    def namesake(self, origin: str) -> None:
        """Somebody else speaks under our name."""
        self._namesake = origin

    def members(self, now_ns: int) -> list[Member]:
        """Every agent of the job that is known, by name; nobody while the job is not shared."""
        if self._member is None:
            return []
        replica, unreachable = self.exchange.replica, self.exchange.unreachable
        return [
            Member(
                node=node,
                address=entry.address,
                incarnation=entry.incarnation,
                state="LEFT" if entry.left else "UNREACHABLE" if node in unreachable else "ALIVE",
                heard_ago_ns=0 if node == replica.me else max(0, now_ns - entry.heard_ns),
                me=node == replica.me,
            )
            for node, entry in sorted(replica.entries.items())
        ]

    def warnings(self) -> list[str]:
        """What keeps this agent from its peers, in words."""
        found = []
        station = self._station
        if self._keyless_ns and self._station.clock() - self._keyless_ns >= KEY_PATIENCE_NS:
            found.append(f"{self.job}: its key was not published; other nodes' evidence is not heard")
        conflict = self.exchange.replica.conflict or self._namesake
        if conflict:
            found.append(
                f"{self.job}: another agent at {conflict} has this node's name {station.node}; "
                "set agent.node to names that differ"
            )
        if self.asked_well >= UNREACHED_AFTER and not self.answered:
            found.append(
                f"{self.job}: no agent has reached this one at {station.address}; check peers.advertise"
            )
        return found

    def depart(self) -> None:
        """The job is over here: its peers are told, and whoever asks is still answered until ``close``."""
        self.departed_ns = self._station.clock()
        if self._member is not None and self.exchange.peers:
            self._send(self._party.depart(self.departed_ns))

    async def told(self, timeout_s: float) -> None:
        """What is on its way has arrived, or the time is over."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)

    def close(self) -> None:
        """Nothing of this job is on its way any more."""
        for task in self._tasks:
            task.cancel()

    def _new_exchange(self) -> Exchange:
        station = self._station
        replica = Replica(station.node, station.address, station.incarnation)
        return Exchange(replica, self._knobs, random.Random())

    def _settle(self) -> None:
        """The exchange joins through the seeds if it may, under our newest address."""
        exchange, address = self.exchange, self._station.address
        if address != exchange.replica.mine.address:
            exchange.replica.move(address)
        apart = {address, *self._myself}
        joined = self._member is not None and bool(address)
        exchange.seeds = tuple(s for s in self._meeting.seeds if s not in apart) if joined else ()

    def _send(self, outgoing: Iterable[Outgoing]) -> None:
        for each in outgoing:
            if len(self._tasks) >= MAX_TASKS:
                # Unreachable in practice: the exchange bounds what is in flight.
                self._party.on_failure(each, self._station.clock())
            else:
                self._start(self._exchange_one(each, self.exchange))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._station.failed(error)

    async def _exchange_one(self, sent: Outgoing, exchange: Exchange) -> None:
        reply = await self._ask(sent)
        if self.exchange is not exchange or self.departed_ns:
            return
        now = self._station.clock()
        if reply is None:
            self._send(self._party.on_failure(sent, now))
        else:
            self.asked_well += 1
            self._send(self._party.on_reply(sent, reply, now))

    async def _ask(self, sent: Outgoing) -> Reply | None:
        if self._member is None:
            return None
        try:
            return await self._station.client.ask(
                self._member, sent.node, sent.address, sent.request, sent.timeout_ns / NS_PER_S
            )
        except PeerError as error:
            self._disappointed(sent, error)
            return None

    def _disappointed(self, sent: Outgoing, error: PeerError) -> None:
        if error.reason == "self":
            self._myself.add(sent.address)
            self._settle()
        elif error.reason == "name":
            self._namesake = sent.address
        else:
            logger().debug(
                "peer",
                job=self.job,
                node=sent.node,
                address=sent.address,
                reason=error.reason,
                text=str(error),
            )

    async def _relay(self, request: Relay) -> Reply | None:
        """What the node answers to us, None if nothing."""
        return await self._ask(self._party.relay(request, self._station.clock()))
