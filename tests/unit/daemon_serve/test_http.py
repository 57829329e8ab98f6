"""The HTTP port over real sockets: three answers, and nothing that a bad client can hold up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from scoutd.daemon.errors import LocalError
from scoutd.daemon.serve.http import HttpServer
from scoutd.daemon.serve.metrics import Metrics
from tests.unit.daemon_serve.fakes import FakeClock


class Site:
    def __init__(self) -> None:
        self.ready = True
        self.server = HttpServer(Metrics(list, FakeClock(), "0", "3"), lambda: self.ready)

    async def ask(self, raw: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        writer.write(raw)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def get(self, path: str) -> bytes:
        return await self.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def with_site(scenario: Callable[[Site], Awaitable[None]]) -> None:
    async def body() -> None:
        site = Site()
        await site.server.start("127.0.0.1", 0)
        try:
            await scenario(site)
        finally:
            site.server.stop()

    asyncio.run(body())


def test_the_three_answers_and_a_query() -> None:
    async def scenario(site: Site) -> None:
        assert (await site.get("/healthz")).endswith(b"\r\n\r\nok\n")
        metrics = await site.get("/metrics?x=1")
        assert metrics.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
        assert b"scoutd_build_info" in metrics
        assert (await site.get("/readyz")).startswith(b"HTTP/1.1 200")
        site.ready = False
        assert (await site.get("/readyz")).startswith(b"HTTP/1.1 503")
        assert (await site.get("/healthz")).startswith(b"HTTP/1.1 200")

    with_site(scenario)


def test_head_has_no_body() -> None:
    async def scenario(site: Site) -> None:
        answer = await site.ask(b"HEAD /healthz HTTP/1.1\r\n\r\n")
        assert b"Content-Length: 3" in answer
        assert answer.endswith(b"\r\n\r\n")

    with_site(scenario)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /nope HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /metrics", 400),
        (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00 \xff\r\n\r\n", 400),
    ],
)
def test_bad_requests_get_their_status(raw: bytes, status: int) -> None:
    async def scenario(site: Site) -> None:
        assert (await site.ask(raw)).startswith(f"HTTP/1.1 {status} ".encode())

    with_site(scenario)


def test_port_in_use_is_one_clear_line() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(LocalError, match=rf"agent\.http_port = {port}: Address already in use"):
                await Site().server.start("127.0.0.1", port)

    asyncio.run(scenario())
