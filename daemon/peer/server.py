"""The Peer service: hears agents of the same jobs, refuses everybody else, survives anything.

A request is judged in this order: length and header, protocol, job, generation, code, session and counter,
body. The generation comes before the code because every generation has a key of its own. A refusal is a gRPC
status, a count by reason, and one line of the log per peer and reason. Nothing is decoded beyond its header
before the code was verified.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, Protocol

import grpc
from google.protobuf.message import DecodeError

from scoutd.agent.messages import Reply, Request
from scoutd.daemon.log import logger
from scoutd.daemon.peer import messagecodec, seal
from scoutd.daemon.peer.client import MYSELF, NAMESAKE, NO_SESSION
from scoutd.daemon.peer.seal import HELLO, Membership
from scoutd.daemon.peer.sessions import NONCE_BYTES, Sessions, Speaker
from scoutd.daemon.peer.traffic import Traffic
from scoutd.proto.v1 import peer_pb2 as pb

SERVICE: Final = "scoutd.v1.Peer"
MAX_CONCURRENT: Final = 64
MAX_TOLD: Final = 1024
_Code = grpc.StatusCode
STATUS: Final = {
    "malformed": _Code.INVALID_ARGUMENT,
    "too_long": _Code.RESOURCE_EXHAUSTED,
    "busy": _Code.UNAVAILABLE,
    "protocol": _Code.FAILED_PRECONDITION,
    "job": _Code.NOT_FOUND,
    "stale_generation": _Code.FAILED_PRECONDITION,
    "future_generation": _Code.UNAVAILABLE,
    "key": _Code.UNAUTHENTICATED,
    "session": _Code.UNAUTHENTICATED,
    "counter": _Code.UNAUTHENTICATED,
    "self": _Code.FAILED_PRECONDITION,
    "name": _Code.FAILED_PRECONDITION,
}
QUIET: Final = frozenset({"self", "session", "busy", "future_generation"})
"""Refusals that happen in a healthy cluster: counted, not logged."""


class Host(Protocol):
    """One job as the service sees it; see ``parties.JobParty``."""

    @property
    def member(self) -> Membership | None:
        """None: this agent takes no part in the exchange of the job."""

    async def answer(self, request: Request) -> Reply: ...
    def namesake(self, origin: str) -> None: ...


Work = Callable[[str, bytes, Any], Awaitable[pb.Sealed]]


class PeerService:
    """``hosts`` finds a job's party by its name; ``is_ours``: the challenge is one of our own greetings."""

    def __init__(
        self,
        hosts: Callable[[str], Host | None],
        is_ours: Callable[[bytes], bool],
        traffic: Traffic,
        sessions: Sessions | None = None,
    ) -> None:
        self.sessions: Final = sessions or Sessions()
        self._hosts: Final = hosts
        self._is_ours: Final = is_ours
        self._traffic: Final = traffic
        self._active = 0
        self._told: Final[set[tuple[str, str]]] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """The server answers peers. Requests arrive as bytes: what does not even parse is counted too."""
        work = {HELLO: self._greet} | dict.fromkeys(messagecodec.KINDS.values(), self._hear)
        methods: dict[str, Any] = {
            kind: grpc.unary_unary_rpc_method_handler(
                functools.partial(self._bounded, kind, how), response_serializer=pb.Sealed.SerializeToString
            )
            for kind, how in work.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))

    async def _bounded(self, kind: str, work: Work, data: bytes, context: Any) -> pb.Sealed:
        self._traffic.bytes_in += len(data)
        if self._active >= MAX_CONCURRENT:
            await self._refuse(context, "busy", "too many requests at once")
        self._active += 1
        try:
            reply = await work(kind, data, context)
        finally:
            self._active -= 1
        self._traffic.answered[kind] += 1
        self._traffic.bytes_out += reply.ByteSize()
        return reply

    async def _greet(self, kind: str, data: bytes, context: Any) -> pb.Sealed:
        request, header, host, member, key = await self._admit(kind, data, context)
        try:
            challenge = pb.Greeting.FromString(request.body).challenge
        except DecodeError:
            challenge = b""
        if len(challenge) != NONCE_BYTES:
            await self._refuse(context, "malformed", "a greeting without a challenge")
        if header.node == member.node:
            if self._is_ours(challenge):
                await self._refuse(context, "self", MYSELF)
            host.namesake(_origin(context))
            await self._refuse(context, "name", NAMESAKE)
        session = os.urandom(NONCE_BYTES)
        self.sessions.open(session, _speaker(header))
        return seal.reply(member, key, kind, request, session, b"")

    async def _hear(self, kind: str, data: bytes, context: Any) -> pb.Sealed:
        request, header, host, member, key = await self._admit(kind, data, context)
        refusal = self.sessions.refuse(header.session, _speaker(header), header.counter)
        if refusal:
            text = NO_SESSION if refusal == "session" else "this counter was used before, or is too old"
            await self._refuse(context, refusal, text)
        try:
            message = messagecodec.decode_request(kind, request.body)
        except ValueError as error:
            await self._refuse(context, "malformed", str(error))
        reply = await host.answer(message)
        return seal.reply(member, key, kind, request, header.session, messagecodec.encode(reply))

    async def _admit(
        self, kind: str, data: bytes, context: Any
    ) -> tuple[pb.Sealed, pb.Header, Host, Membership, bytes]:
        """An authentic request of a member of a job of ours, or the call has ended."""
        try:
            request = seal.parse(data)
            header = seal.open_header(request)
        except ValueError as error:
            reason = "too_long" if isinstance(error, seal.TooLong) else "malformed"
            await self._refuse(context, reason, str(error))
        if header.protocol != seal.PROTOCOL:
            text = f"protocol {header.protocol}, this agent speaks {seal.PROTOCOL}"
            await self._refuse(context, "protocol", text)
        host = self._hosts(header.job)
        member = host.member if host is not None else None
        if host is None or member is None:
            await self._refuse(context, "job", "this agent takes no part in this job")
        if header.generation < member.generation:
            await self._refuse(context, "stale_generation", "stale generation")
        if header.generation > member.generation:
            await self._refuse(context, "future_generation", "this generation was not seen here yet")
        key = seal.key_of_request(member, kind, request)
        if key is None:
            await self._refuse(context, "key", "not sealed with the key of this job")
        return request, header, host, member, key

    async def _refuse(self, context: Any, reason: str, text: str) -> NoReturn:
        self._traffic.refused[reason] += 1
        origin = _origin(context)
        if reason not in QUIET and (origin, reason) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((origin, reason))
            logger().warning("peer refused", peer=origin, reason=reason, text=text)
        await context.abort(STATUS[reason], text)
        raise AssertionError("abort returns never")


def _speaker(header: pb.Header) -> Speaker:
    return Speaker(header.job, header.generation, header.node)


def _origin(context: Any) -> str:
    """The host that speaks, without the port, which is new with every connection."""
    peer = str(context.peer())
    scheme, _, rest = peer.partition(":")
    return rest.rpartition(":")[0] if scheme in ("ipv4", "ipv6") else scheme
