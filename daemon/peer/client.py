"""Requests to other agents: channels, sessions, deadlines.

A channel per address is opened at the first request and closed when it was not used for ``IDLE_S`` or when
too many are open. gRPC connects again by itself, with growing pauses between ``FIRST_BACKOFF_MS`` and
``MOST_BACKOFF_MS``; until then a request fails at once, which is what the exchange wants to know.
Every way in which a peer can disappoint is a PeerError with its reason; nothing is repeated here but one
greeting after a peer says that it does not know our session (it was started anew).
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

from scoutd.agent.messages import Reply, Request
from scoutd.daemon.errors import PeerError
from scoutd.daemon.peer import messagecodec, seal
from scoutd.daemon.peer.address import target
from scoutd.daemon.peer.seal import HELLO, Membership
from scoutd.daemon.peer.sessions import NONCE_BYTES
from scoutd.daemon.peer.traffic import Traffic
from scoutd.proto.v1 import peer_pb2 as pb

IDLE_S: Final = 24.0
MAX_CHANNELS: Final = 64
FIRST_BACKOFF_MS: Final = 200
MOST_BACKOFF_MS: Final = 2000
CONNECT_MS: Final = 3000
"""What gRPC calls its least pause is the time that an attempt to connect may take: enough for an agent whose
machine has no time for it, and for two SYNs that were lost."""

MAX_MESSAGE_BYTES: Final = messagecodec.MAX_BODY_BYTES + 4096
NO_SESSION: Final = "unknown session"
MYSELF: Final = "this is you"
NAMESAKE: Final = "this node has another agent"
OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", FIRST_BACKOFF_MS),
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", MOST_BACKOFF_MS),
)


class Security(Protocol):
    """How channels are secured; see ``tls.Credentials``. ``epoch`` grows when the files have changed."""

    @property
    def epoch(self) -> int: ...

    def channel(self, at: str, options: tuple[tuple[str, Any], ...]) -> grpc.aio.Channel: ...


class Plain:
    """No transport security: the codes still prove membership."""

    epoch = 0

    def channel(self, at: str, options: tuple[tuple[str, Any], ...]) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(at, options=options)


class _Session:
    """``id`` is empty until the server has answered Hello."""

    def __init__(self) -> None:
        self.id = b""
        self.counter = 0
        self.greeting: Final = asyncio.Lock()


class _Link:
    """One address: its channel and the sessions in it, by job and generation."""

    def __init__(self, channel: grpc.aio.Channel, epoch: int, now: float) -> None:
        self.channel: Final = channel
        self.epoch: Final = epoch
        self.used = now
        self.busy = 0
        self.sessions: Final[dict[tuple[str, int], _Session]] = {}
        self._calls: Final[dict[str, Callable[..., Awaitable[pb.Sealed]]]] = {}

    def call(self, kind: str) -> Callable[..., Awaitable[pb.Sealed]]:
        if kind not in self._calls:
            self._calls[kind] = self.channel.unary_unary(
                f"/scoutd.v1.Peer/{kind}",
                request_serializer=pb.Sealed.SerializeToString,
                response_deserializer=pb.Sealed.FromString,
            )
        return self._calls[kind]


class PeerClient:
    """All requests of this agent. ``challenges`` are those of greetings on their way: who receives one of
    its own has called itself."""

    def __init__(
        self,
        traffic: Traffic,
        security: Security | None = None,
        most: int = MAX_CHANNELS,
        idle_s: float = IDLE_S,
    ) -> None:
        self.challenges: Final[set[bytes]] = set()
        self._traffic: Final = traffic
        self._security: Final[Security] = security or Plain()
        self._most: Final = most
        self._idle_s: Final = idle_s
        self._links: Final[OrderedDict[str, _Link]] = OrderedDict()
        self._closing: Final[set[asyncio.Task[None]]] = set()

    @property
    def channels(self) -> int:
        return len(self._links)

    async def ask(
        self, member: Membership, node: str, address: str, request: Request, timeout_s: float
    ) -> Reply:
        """The reply of the agent of ``node`` (empty: of whoever is there) at this address.

        Raises:
            PeerError: there is no reply that may be believed within the time.
        """
        kind = messagecodec.kind_of(request)
        try:
            reply = await self._ask(member, node, address, kind, messagecodec.encode(request), timeout_s)
            decoded = _decoded(kind, reply.body)
        except PeerError as error:
            self._traffic.requests[kind, error.reason] += 1
            raise
        self._traffic.requests[kind, "ok"] += 1
        return decoded

    def tidy(self) -> None:
        """Channels that nobody uses, and those with outdated credentials, are being closed."""
        now = asyncio.get_running_loop().time()
        for address, link in list(self._links.items()):
            outdated = link.epoch != self._security.epoch
            if not link.busy and (outdated or now - link.used > self._idle_s):
                self._drop(address)

    async def close(self) -> None:
        """No channel is open."""
        for address in list(self._links):
            self._drop(address)
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=1.0)

    async def _ask(
        self, member: Membership, node: str, address: str, kind: str, body: bytes, timeout_s: float
    ) -> pb.Sealed:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        link = self._link(address)
        link.busy += 1
        try:
            for last in (False, True):
                session = await self._session(link, member, deadline)
                session.counter += 1
                sealed = seal.request(member, kind, session.id, session.counter, body)
                try:
                    return await self._exchange(link, member, node, kind, sealed, deadline)
                except PeerError as error:
                    if error.reason != "session" or last:
                        raise
                    link.sessions.pop((member.job, member.generation), None)
            raise AssertionError("not reached")
        finally:
            link.busy -= 1
            link.used = loop.time()

    async def _session(self, link: _Link, member: Membership, deadline: float) -> _Session:
        """A session that the server knows; one greeting at a time."""
        session = link.sessions.setdefault((member.job, member.generation), _Session())
        if session.id:
            return session
        async with session.greeting:
            if not session.id:
                session.id = await self._greet(link, member, deadline)
        return session

    async def _greet(self, link: _Link, member: Membership, deadline: float) -> bytes:
        challenge = os.urandom(NONCE_BYTES)
        self.challenges.add(challenge)
        try:
            body = pb.Greeting(challenge=challenge).SerializeToString()
            sealed = seal.request(member, HELLO, b"", 0, body)
            reply = await self._exchange(link, member, "", HELLO, sealed, deadline)
        finally:
            self.challenges.discard(challenge)
        session: bytes = seal.open_header(reply).session
        if len(session) != NONCE_BYTES:
            raise PeerError("malformed", "a greeting was answered without a session")
        return session

    async def _exchange(
        self, link: _Link, member: Membership, node: str, kind: str, sealed: pb.Sealed, deadline: float
    ) -> pb.Sealed:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise PeerError("timeout", f"no time is left for {kind}")
        self._traffic.bytes_out += sealed.ByteSize()
        try:
            reply = await link.call(kind)(sealed, timeout=left)
        except grpc.aio.AioRpcError as error:
            raise _disappointment(error) from error
        self._traffic.bytes_in += reply.ByteSize()
        _check(member, node, kind, sealed, reply)
        return reply

    def _link(self, address: str) -> _Link:
        link = self._links.get(address)
        if link is None:
            self._make_room()
            try:
                channel = self._security.channel(target(address), OPTIONS)
            except ValueError as error:
                raise PeerError("address", str(error)) from error
            link = _Link(channel, self._security.epoch, asyncio.get_running_loop().time())
            self._links[address] = link
        self._links.move_to_end(address)
        return link

    def _make_room(self) -> None:
        if len(self._links) < self._most:
            return
        idle = next((address for address, link in self._links.items() if not link.busy), None)
        if idle is None:
            raise PeerError("busy", f"{self._most} channels are in use")
        self._drop(idle)

    def _drop(self, address: str) -> None:
        link = self._links.pop(address)
        task = asyncio.get_running_loop().create_task(link.channel.close(None))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _check(member: Membership, node: str, kind: str, asked: pb.Sealed, reply: pb.Sealed) -> None:
    """Raises PeerError unless the reply is of this job, of this node, and for this request."""
    if not seal.is_reply(member, kind, asked, reply):
        raise PeerError("forged", f"the reply to {kind} is not sealed with the key of the job")
    try:
        header = seal.open_header(reply)
    except ValueError as error:
        raise PeerError("malformed", str(error)) from error
    if (header.job, header.generation) != (member.job, member.generation):
        raise PeerError("malformed", "the reply is of another job or generation")
    if node and header.node != node:
        raise PeerError("unreachable", f"the agent of {header.node} answers where {node} was")


def _decoded(kind: str, body: bytes) -> Reply:
    try:
        return messagecodec.decode_reply(kind, body)
    except ValueError as error:
        raise PeerError("malformed", f"the reply to {kind}: {error}") from error


def _disappointment(error: grpc.aio.AioRpcError) -> PeerError:
    code, text = error.code(), error.details() or ""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return PeerError("timeout", text)
    if text == NO_SESSION:
        return PeerError("session", text)
    if text == MYSELF:
        return PeerError("self", text)
    if text == NAMESAKE:
        return PeerError("name", text)
    if code == grpc.StatusCode.UNAVAILABLE:
        return PeerError("unreachable", text)
    return PeerError("refused", f"{code.name}: {text}")
