"""A Peer service on loopback with one job, and a hand that seals whatever a test wants to send."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio

from scoutd.agent.messages import Mark, ProbeReply, Reply, Request
from scoutd.daemon.peer import seal
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.seal import Membership
from scoutd.daemon.peer.server import PeerService
from scoutd.daemon.peer.traffic import Traffic
from scoutd.proto.v1 import peer_pb2 as pb

KEY = bytes(range(32))
MARK = Mark("a", "127.0.0.1:9", 1, 1, 1, 1)
REPLY = ProbeReply((MARK,), 7)


@dataclass
class Host:
    member: Membership | None
    heard: list[Request] = field(default_factory=list)
    namesakes: list[str] = field(default_factory=list)

    async def answer(self, request: Request) -> Reply:
        self.heard.append(request)
        return REPLY

    def namesake(self, origin: str) -> None:
        self.namesakes.append(origin)


@dataclass
class Peer:
    """The service ``host`` behind ``address``; ``client`` belongs to the same agent."""

    host: Host
    service: PeerService
    client: PeerClient
    traffic: Traffic
    address: str
    channel: grpc.aio.Channel

    async def send(self, kind: str, data: bytes) -> pb.Sealed:
        call = self.channel.unary_unary(f"/scoutd.v1.Peer/{kind}", response_deserializer=pb.Sealed.FromString)
        reply: pb.Sealed = await call(data, timeout=5)
        return reply

    async def refusal(self, kind: str, sealed: pb.Sealed | bytes) -> tuple[grpc.StatusCode, str]:
        data = sealed if isinstance(sealed, bytes) else sealed.SerializeToString()
        try:
            await self.send(kind, data)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        raise AssertionError("it was heard")

    async def session(self, member: Membership) -> bytes:
        body = pb.Greeting(challenge=os.urandom(16)).SerializeToString()
        reply = await self.send(
            seal.HELLO, seal.request(member, seal.HELLO, b"", 0, body).SerializeToString()
        )
        found: bytes = seal.open_header(reply).session
        return found


def member(node: str = "a", job: str = "job", generation: int = 3, key: bytes = KEY) -> Membership:
    return Membership(job, generation, node, (key,))


@asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    traffic = Traffic()
    client = PeerClient(Traffic())
    host = Host(member("b"))
    service = PeerService(lambda job: host if job == "job" else None, client.challenges.__contains__, traffic)
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", 8 << 20),))
    service.add_to(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield Peer(host, service, client, traffic, address, channel)
    await client.close()
    await server.stop(0)


def scenario(work: Callable[[Peer], Awaitable[None]]) -> None:
    async def body() -> None:
        async with peer() as made:
            await asyncio.wait_for(work(made), 20)

    asyncio.run(body())
