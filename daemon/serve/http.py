"""The HTTP port: ``/metrics``, ``/healthz``, ``/readyz``. A few lines on asyncio, because three fixed answers
need no framework and no thread.

``/healthz``: the process answers (always 200). ``/readyz``: 200 while the agent serves, 503 before and while
it stops. Every request is bounded in size and time, one per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from scoutd.daemon.errors import LocalError
from scoutd.daemon.serve.grpc_server import check_tcp
from scoutd.daemon.serve.metrics import CONTENT_TYPE, Metrics

MAX_CONNECTIONS: Final = 32
MAX_HEAD_BYTES: Final = 8192
TIMEOUT_S: Final = 5.0
TEXT: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

Answer = tuple[int, str, bytes]


class HttpServer:
    """Bound once ``start`` returned; ``port`` is the real one."""

    def __init__(self, metrics: Metrics, ready: Callable[[], bool]) -> None:
        self.port = 0
        self._metrics: Final = metrics
        self._ready: Final = ready
        self._open = 0
        self._server: asyncio.Server | None = None

    async def start(self, bind: str, port: int) -> None:
        """Raises LocalError if the address cannot be bound."""
        check_tcp(bind, port, "http_port")
        try:
            self._server = await asyncio.start_server(self._serve, bind, port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise LocalError(f"cannot listen on {bind}, agent.http_port = {port}: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """No new connection is accepted."""
        if self._server is not None:
            self._server.close()

    def answer(self, method: str, path: str) -> Answer:
        """Status, content type and body for one request."""
        if method not in ("GET", "HEAD"):
            return 405, TEXT, b"only GET and HEAD\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._metrics.exposition()
        if path == "/healthz":
            return 200, TEXT, b"ok\n"
        if path == "/readyz":
            return (200, TEXT, b"ready\n") if self._ready() else (503, TEXT, b"not ready\n")
        return 404, TEXT, b"/metrics, /healthz, /readyz\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(self._converse(reader, writer), TIMEOUT_S)
        finally:
            self._open -= 1
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open > MAX_CONNECTIONS:
            writer.write(_response((503, TEXT, b"too many connections\n"), False))
        else:
            method, path = await _request(reader)
            answer = self.answer(method, path) if method else (400, TEXT, b"bad request\n")
            writer.write(_response(answer, method == "HEAD"))
        await writer.drain()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Method and path, both empty if the head is not one of HTTP/1 or too long."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return "", ""
    parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return "", ""
    return parts[0], parts[1].partition("?")[0]


def _response(answer: Answer, head_only: bool) -> bytes:
    status, content_type, body = answer
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if head_only else body)
