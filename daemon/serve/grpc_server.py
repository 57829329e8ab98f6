"""The gRPC server: one TCP port and one Unix socket, with health and reflection.

gRPC would share a port with another process (SO_REUSEPORT) and reports a port in use with a C++ log; so both
addresses are tried with plain sockets first, and the answer is one clear line. The socket file is made under
a umask, so it is never open to others, not even for a moment.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Final

# Before grpc is imported: its C++ core logs to stderr in a format of its own, between our JSON lines.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from scoutd.daemon import runtime
from scoutd.daemon.errors import LocalError
from scoutd.daemon.peer.client import MAX_MESSAGE_BYTES
from scoutd.daemon.peer.server import SERVICE, PeerService
from scoutd.daemon.peer.tls import Credentials
from scoutd.daemon.serve.control import ControlService
from scoutd.daemon.serve.query import QueryService
from scoutd.proto.v1 import query_pb2, query_pb2_grpc

QUERY: Final = "scoutd.v1.Query"
MAX_REQUEST_BYTES: Final = 2 * MAX_MESSAGE_BYTES
"""Over-long messages of peers are refused, and counted, by the service; this is the wall behind it."""

MAX_RESPONSE_BYTES: Final = 16 << 20
MAX_CONCURRENT_CALLS: Final = 256
OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", MAX_RESPONSE_BYTES),
)


class GrpcServer:
    """Bound once ``start`` returned; ``port`` is the real one."""

    def __init__(
        self, query: QueryService, control: ControlService, peers: PeerService | None = None
    ) -> None:
        self.port = 0
        self._health: Final = health.aio.HealthServicer()
        self._server: Final = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS)
        query_pb2_grpc.add_QueryServicer_to_server(query, self._server)
        query_pb2_grpc.add_ControlServicer_to_server(control, self._server)
        if peers is not None:
            peers.add_to(self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        services = [each.full_name for each in query_pb2.DESCRIPTOR.services_by_name.values()]
        if peers is not None:
            services.append(SERVICE)
        reflection.enable_server_reflection(
            [*services, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server
        )

    async def start(self, bind: str, port: int, path: Path, credentials: Credentials | None = None) -> None:
        """Answers on ``bind:port`` (with TLS where there are credentials) and on the Unix socket ``path``,
        not yet SERVING.

        Raises:
            LocalError: an address is in use or not of this host, or another agent answers on the socket.
        """
        await self.serving(False)
        check_tcp(bind, port, "port")
        _check_socket(path)
        try:
            if credentials is not None:
                self.port = self._server.add_secure_port(_target(bind, port), credentials.server())
            else:
                self.port = self._server.add_insecure_port(_target(bind, port))
            before = os.umask(0o177)
            try:
                self._server.add_insecure_port(f"unix:{path}")
            finally:
                os.umask(before)
        except RuntimeError as error:
            raise LocalError(f"cannot listen on {bind}:{port} and {path}: {error}") from error
        await self._server.start()

    async def serving(self, ready: bool) -> None:
        """What health checks are told."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in ("", QUERY):
            await self._health.set(service, status)

    async def stop(self, grace_s: float) -> None:
        """No call is answered any more; calls in progress had ``grace_s`` to end."""
        await self._server.stop(grace_s)


def check_tcp(bind: str, port: int, key: str) -> None:
    """Raises LocalError if this address cannot be bound now; ``key`` names the setting."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except socket.gaierror as error:
        raise LocalError(f"agent.bind = {bind!r} is not an address: {error.strerror}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise LocalError(f"cannot listen on {bind}, agent.{key} = {port}: {reason}") from error


def _check_socket(path: Path) -> None:
    """A stale socket is removed; a living one, or a file that is no socket, is somebody's."""
    runtime.check_socket_path(path)
    if runtime.answers(path):
        raise LocalError(f"another agent answers on {path}")
    try:
        if path.exists() and not path.is_socket():
            raise LocalError(f"agent.socket = {path} exists and is not a socket")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except OSError as error:
        raise LocalError(f"cannot listen on {path}: {error.strerror}") from error


def _target(bind: str, port: int) -> str:
    return f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
