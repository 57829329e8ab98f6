"""Where peers reach this agent.

With an address of its own in ``agent.bind`` the agent's one gRPC port serves everything, peers included. By
default (``auto``) that port stays on loopback, and once a job is seen that has ranks on other nodes, a second
listener opens at the advertised address, under the same port number where that is free: it serves peers and
nothing else. So a job on one node opens nothing to the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio

from scoutd.daemon.log import logger
from scoutd.daemon.peer import advertise
from scoutd.daemon.peer.address import is_loopback, join
from scoutd.daemon.peer.client import MAX_MESSAGE_BYTES
from scoutd.daemon.peer.server import PeerService
from scoutd.daemon.peer.tls import Credentials

OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)
MAX_CONCURRENT_CALLS: Final = 128
RETRY_S: Final = 30.0
"""Between two attempts to open a listener that could not be opened."""


class Listener:
    """``address`` is what others are told, empty while nobody could reach us. ``told``: host and port from
    the configuration, port 0 for that of the listener."""

    def __init__(
        self, service: PeerService, told: Callable[[], tuple[str, int]], credentials: Credentials | None
    ) -> None:
        self.address = ""
        self.warning = ""
        self._service: Final = service
        self._told: Final = told
        self._credentials: Final = credentials
        self._server: grpc.aio.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._next_try = 0.0
        self._port = 0

    def serve_on(self, bind: str, port: int) -> None:
        """The agent's own port serves peers: it listens on ``bind``, which may stand for every address."""
        host, told = self._told() if _is_any(bind) else (bind, 0)
        self.address = join(host, told or port)
        self._task = asyncio.get_running_loop().create_task(self._try_out())

    def prefer(self, port: int) -> None:
        """The number that a listener opened later should have."""
        self._port = port

    def want(self) -> None:
        """A job has ranks elsewhere: there is a listener soon, if there can be one."""
        loop = asyncio.get_running_loop()
        if self.address or loop.time() < self._next_try or (self._task and not self._task.done()):
            return
        self._next_try = loop.time() + RETRY_S
        self._task = loop.create_task(self._open())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._server is not None:
            await self._server.stop(0.2)

    async def _open(self) -> None:
        host, told = self._told()
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS)
        self._service.add_to(server)
        for bind in _binds(host):
            port = _listen(server, bind, told or self._port, bool(told), self._credentials)
            if port:
                break
        else:
            self.warning = f"no other node can reach this agent: cannot listen on {join(bind, told)}"
            logger().warning("peers", reason=self.warning)
            return
        await server.start()
        self._server = server
        self.address = join(host, told or port)
        self.warning = ""
        logger().info("listening for peers", address=self.address, bind=join(bind, port))
        await self._try_out()

    async def _try_out(self) -> None:
        """An advertised address that this host itself does not reach is worth a warning, no more: some
        networks do not lead back (hairpin NAT)."""
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        if is_loopback(host):
            return
        reason = await advertise.reached(host, int(port))
        if reason:
            self.warning = (
                f"this agent tells others that it is at {self.address}, which does not answer from here "
                f"({reason}); check peers.advertise"
            )
            logger().warning("peers", reason=self.warning)


def _listen(
    server: grpc.aio.Server, bind: str, port: int, fixed: bool, credentials: Credentials | None
) -> int:
    """The port; 0 if there is none. A number that is not fixed is only preferred."""
    for number in (port,) if fixed else (port, 0):
        try:
            at = join(bind, number)
            if credentials is not None:
                return server.add_secure_port(at, credentials.server())
            return server.add_insecure_port(at)
        except RuntimeError:
            continue
    return 0


def _binds(host: str) -> tuple[str, ...]:
    """Addresses to listen on, the preferred first. An advertised address of another machine is translated on
    the way: its port may be that of our own loopback port, which leaves every address but that one."""
    if advertise.is_local(host):
        return (host,)
    return ("::" if ":" in host else "0.0.0.0", advertise.way_out())


def _is_any(bind: str) -> bool:
    return bind in ("0.0.0.0", "::", "")
