"""This agent among others: its parties, its client, its service, where it is reached and whom it knows.

The main loop asks for a core per job and tells every observation; everything else happens by itself. A job
takes part in the exchange once its ranks are known to be spread over agents and a key is known: one made of a
secret that the configuration names, else the one that rank 0's shim left in the trainer's store.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scoutd.agent.messages import Order, OrderReply
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.daemon.errors import ConfigError
from scoutd.daemon.log import logger
from scoutd.daemon.peer import advertise
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.directory import Directory
from scoutd.daemon.peer.listener import Listener
from scoutd.daemon.peer.parties import JobParty, Member, Rendezvous, Station
from scoutd.daemon.peer.plan import PeerPlan
from scoutd.daemon.peer.server import PeerService
from scoutd.daemon.peer.tls import Credentials
from scoutd.daemon.peer.traffic import Traffic
from scoutd.daemon.seams import ObservationPort

MIN_SECRET_BYTES: Final = 16
TIDY_NS: Final = 5_000_000_000
DEPARTED_NS: Final = 60_000_000_000
"""Agents that lag behind may still ask how the job ended here."""

FAREWELL_S: Final = 1.0
"""How long an agent that ends waits for its farewells."""


class Neighbours:
    """``address`` is where others reach this agent, empty while they cannot."""

    def __init__(
        self,
        plan: PeerPlan,
        node: str,
        incarnation: int,
        traffic: Traffic,
        clock: Callable[[], int],
        wake: Callable[[], None],
        failed: Callable[[Exception], None],
        addressed: Callable[[str], None],
    ) -> None:
        """Raises ConfigError where the plan cannot be followed."""
        self._plan: Final = plan
        self._credentials: Final = Credentials(plan.tls) if plan.tls is not None else None
        self._client: Final = PeerClient(traffic, self._credentials)
        self._station: Final = Station(node, incarnation, self._client, clock, wake, failed)
        self._parties: Final[dict[str, JobParty]] = {}
        self._departed: Final[dict[str, JobParty]] = {}
        self._secret: Final = _secret(plan.key_file)
        self._directory: Final = Directory(plan.addresses, plan.dns, plan.default_port)
        self._lost: Final[dict[str, frozenset[str]]] = {}
        self._addressed: Final = addressed
        self._tidied_ns = 0
        if plan.advertise or plan.interface:
            advertise.choose(plan.advertise, plan.interface)
        self.service: Final = PeerService(self._host, self._client.challenges.__contains__, traffic)
        self.listener: Final = Listener(
            self.service, lambda: advertise.choose(plan.advertise, plan.interface), self._credentials
        )

    @property
    def address(self) -> str:
        return self.listener.address

    @property
    def credentials(self) -> Credentials | None:
        return self._credentials

    def open(self, bind: str, port: int) -> None:
        """The agent listens; ``bind`` is empty where its own port is for this host alone."""
        self._directory.start()
        if bind:
            self.listener.serve_on(bind, port)
        else:
            self.listener.prefer(port)

    def admit(self, job: str, settings: Settings, exchange: ExchangeSettings) -> JobParty:
        """The core of a job that was not known before, or had left."""
        self._forget(job)
        party = self._parties[job] = JobParty(job, settings, exchange, self._station)
        return party

    def meet(self, observation: ObservationPort) -> None:
        """The job's party knows what the observation says about other agents."""
        party = self._parties.get(observation.job)
        if party is None:
            return
        found = observation.discovery
        seeds = dict.fromkeys((*found.seeds, *self._directory.addresses))
        if found.shared:
            self.listener.want()
        if self._station.address != self.listener.address:
            self._station.address = self.listener.address
            self._addressed(self.listener.address)
        # A secret of the configuration is there on all nodes at once; the store's key comes when it comes.
        keys = (*self._derived(observation.job, observation.generation), *found.keys)
        party.meet(Rendezvous(observation.generation, found.shared, keys, tuple(seeds)))
        self._note_losses(party)
        self._tidy()

    def late(self, late_ns: int) -> None:
        """The main loop's round came so much later than it should have: this host is overloaded, and its
        word on others' silence is taken with care."""
        self._station.late_ns = late_ns

    def leave(self, job: str) -> None:
        """The job is over here. Its peers are told, answered for ``DEPARTED_NS`` and then refused."""
        party = self._parties.pop(job, None)
        if party is None:
            return
        self._lost.pop(job, None)
        self._forget(job)
        self._departed[job] = party
        party.depart()

    def _host(self, job: str) -> JobParty | None:
        return self._parties.get(job) or self._departed.get(job)

    def _forget(self, job: str) -> None:
        party = self._departed.pop(job, None)
        if party is not None:
            party.close()
            self.service.sessions.forget(job)

    def settled(self, job: str) -> bool:
        """The job can be judged for the last time; see ``JobParty.settled``."""
        party = self._parties.get(job)
        return party is None or party.settled

    def members(self, job: str) -> list[Member]:
        party = self._parties.get(job)
        return party.members(self._station.clock()) if party is not None else []

    def carry_out(self, how: Callable[[str, Order], OrderReply]) -> None:
        """``how`` has the ranks of a job here replay when another agent of the job says so."""
        self._station.carry_out = how

    async def order(self, job: str, order: Order) -> dict[str, OrderReply | None]:
        """See ``JobParty.order``; nobody for a job that is not shared."""
        party = self._parties.get(job)
        return await party.order(order) if party is not None else {}

    def show_layout(self, how: Callable[[str], bytes]) -> None:
        """``how`` tells another agent of a job what is seen here of its layout."""
        self._station.layout = how

    async def layouts(self, job: str) -> dict[str, bytes | None]:
        """See ``JobParty.layouts``; nobody for a job that is not shared."""
        party = self._parties.get(job)
        return await party.layouts() if party is not None else {}

    def states(self) -> Counter[str]:
        """How many peers of all jobs are in which state, this agent not counted."""
        found: Counter[str] = Counter(ALIVE=0, UNREACHABLE=0, LEFT=0)
        for job in self._parties:
            found.update(m.state for m in self.members(job) if not m.me)
        return found

    def warnings(self) -> list[str]:
        found = [self.listener.warning, self._directory.warning]
        if self._credentials is not None:
            found.append(self._credentials.warning)
        for party in self._parties.values():
            found += party.warnings()
        return [warning for warning in found if warning]

    async def close(self) -> None:
        for job in list(self._parties):
            self._parties.pop(job).close()
        await asyncio.gather(*(party.told(FAREWELL_S) for party in self._departed.values()))
        for job in list(self._departed):
            self._forget(job)
        await self._directory.close()
        await self.listener.close()
        await self._client.close()

    def _derived(self, job: str, generation: int) -> tuple[bytes, ...]:
        if not self._secret:
            return ()
        text = f"scoutd job key\0{job}\0{generation}".encode()
        return (hmac.new(self._secret, text, hashlib.sha256).digest(),)

    def _note_losses(self, party: JobParty) -> None:
        now = frozenset(party.exchange.unreachable)
        before = self._lost.get(party.job, frozenset())
        if now != before:
            self._lost[party.job] = now
            for node in sorted(now - before):
                logger().warning("node unreachable", job=party.job, node=node)
            for node in sorted(before - now):
                logger().info("node back", job=party.job, node=node)

    def _tidy(self) -> None:
        now = self._station.clock()
        if now - self._tidied_ns >= TIDY_NS:
            self._tidied_ns = now
            for job, party in list(self._departed.items()):
                if now - party.departed_ns >= DEPARTED_NS:
                    self._forget(job)
            self._client.tidy()


def _secret(path: str) -> bytes:
    """The content of the key file, stripped; empty where none is configured."""
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"peers.key_file = {path}: {error.strerror}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(f"peers.key_file = {path}: at least {MIN_SECRET_BYTES} bytes are needed")
    return secret
