"""Two wires behind one interface: the simulation's network and real gRPC on loopback.

``Wire.ask`` sends one request from a node to a node and returns the reply, or None for a failure, which is
all that an exchange ever learns. Handlers answer at once; a stopped node keeps requests and never answers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc.aio

from scoutd.agent.messages import Outgoing, Reply, Request
from scoutd.daemon.errors import PeerError
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.seal import Membership
from scoutd.daemon.peer.server import PeerService
from scoutd.daemon.peer.traffic import Traffic
from tests.simulation.network import Network
from tests.simulation.timeline import Timeline, ns

Handler = Callable[[Request], Reply]
KEY = bytes(range(32))


class Wire(Protocol):
    def start(self, node: str, handler: Handler) -> None: ...
    def kill(self, node: str) -> None: ...
    def stop(self, node: str) -> None: ...
    def address(self, node: str) -> str: ...
    def ask_all(self, source: str, node: str, requests: Sequence[Request], timeout_s: float) -> list[Any]: ...
    def close(self) -> None: ...


class _Endpoint:
    def __init__(self, node: str, handler: Handler) -> None:
        self.node, self.handler = node, handler
        self.listening, self.stopped = True, False

    def deliver(self, request: Request, answer: Callable[[Reply], None]) -> None:
        if not self.stopped:
            answer(self.handler(request))


class SimulatedWire:
    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, random.Random(7))

    def start(self, node: str, handler: Handler) -> None:
        self.network.endpoints[self.address(node)] = _Endpoint(node, handler)

    def kill(self, node: str) -> None:
        self._endpoint(node).listening = False

    def stop(self, node: str) -> None:
        self._endpoint(node).stopped = True

    def address(self, node: str) -> str:
        return f"{node}:1"

    def ask_all(self, source: str, node: str, requests: Sequence[Request], timeout_s: float) -> list[Any]:
        settled: list[tuple[int, Reply | None]] = []
        for number, request in enumerate(requests):
            out = Outgoing(node, self.address(node), request, ns(timeout_s))
            self.network.send(
                source,
                out,
                lambda reply, number=number: settled.append((number, reply)),  # type: ignore[misc]
                lambda number=number: settled.append((number, None)),  # type: ignore[misc]
            )
        self.timeline.run_until(self.timeline.now_s + timeout_s + 0.1)
        assert sorted(number for number, _ in settled) == list(range(len(requests)))
        return [reply for _, reply in sorted(settled, key=lambda pair: pair[0])]

    def close(self) -> None:
        pass

    def _endpoint(self, node: str) -> _Endpoint:
        endpoint = self.network.endpoints[self.address(node)]
        assert isinstance(endpoint, _Endpoint)
        return endpoint


class _Host:
    def __init__(self, node: str, handler: Handler) -> None:
        self.member: Membership | None = Membership("job", 1, node, (KEY,))
        self.handler, self.stopped = handler, False

    async def answer(self, request: Request) -> Reply:
        if self.stopped:
            await asyncio.sleep(60)
        return self.handler(request)

    def namesake(self, origin: str) -> None:
        raise AssertionError(f"namesake from {origin}")


class GrpcWire:
    """Every node has its client and its server; all live on one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.hosts: dict[str, _Host] = {}
        self.servers: dict[str, grpc.aio.Server] = {}
        self.ports: dict[str, int] = {}
        self.clients: dict[str, PeerClient] = {}

    def start(self, node: str, handler: Handler) -> None:
        self.loop.run_until_complete(self._start(node, handler))

    def kill(self, node: str) -> None:
        self.loop.run_until_complete(self.servers.pop(node).stop(0))

    def stop(self, node: str) -> None:
        self.hosts[node].stopped = True

    def address(self, node: str) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    def ask_all(self, source: str, node: str, requests: Sequence[Request], timeout_s: float) -> list[Any]:
        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(self._ask(source, node, each, timeout_s) for each in requests))

        return self.loop.run_until_complete(all_of_them())

    def close(self) -> None:
        async def closed() -> None:
            await asyncio.gather(*(client.close() for client in self.clients.values()))
            await asyncio.gather(*(server.stop(0) for server in self.servers.values()))

        self.loop.run_until_complete(closed())
        self.loop.close()

    async def _start(self, node: str, handler: Handler) -> None:
        host = self.hosts[node] = _Host(node, handler)
        if node not in self.clients:
            self.clients[node] = PeerClient(Traffic())
        challenges = self.clients[node].challenges
        service = PeerService(lambda job: host if job == "job" else None, challenges.__contains__, Traffic())
        server = self.servers[node] = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        service.add_to(server)
        self.ports[node] = server.add_insecure_port(f"127.0.0.1:{self.ports.get(node, 0)}")
        await server.start()

    async def _ask(self, source: str, node: str, request: Request, timeout_s: float) -> Reply | None:
        member = Membership("job", 1, source, (KEY,))
        try:
            return await self.clients[source].ask(member, node, self.address(node), request, timeout_s)
        except PeerError:
            return None
