"""Where peers reach this agent, and the warning where they would not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from scoutd.agent.messages import Probe
from scoutd.daemon.peer import advertise
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.listener import Listener
from scoutd.daemon.peer.server import PeerService
from scoutd.daemon.peer.traffic import Traffic
from tests.unit.daemon_peer.wire import MARK, REPLY, Host, member

PROBE = Probe((MARK,), 0)


def listening(told: tuple[str, int], work: Callable[[Listener], Awaitable[None]]) -> None:
    async def body() -> None:
        host = Host(member("b"))
        service = PeerService(lambda job: host, lambda challenge: False, Traffic())
        listener = Listener(service, lambda: told, None)
        try:
            await asyncio.wait_for(work(listener), 20)
        finally:
            await listener.close()

    asyncio.run(body())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def ask(address: str) -> object:
    client = PeerClient(Traffic())
    try:
        return await client.ask(member(), "b", address, PROBE, 5.0)
    finally:
        await client.close()


def test_nothing_listens_before_a_job_wants_it() -> None:
    async def work(listener: Listener) -> None:
        listener.prefer(0)
        assert listener.address == ""
        listener.want()
        await until(lambda: listener.address)
        assert await ask(listener.address) == REPLY

    listening(("127.0.0.1", 0), work)


def test_ipv6() -> None:
    async def work(listener: Listener) -> None:
        listener.want()
        await until(lambda: listener.address)
        assert listener.address.startswith("[::1]:")
        assert await ask(listener.address) == REPLY

    listening(("::1", 0), work)


def test_a_preferred_port_that_is_taken_is_given_up() -> None:
    async def work(listener: Listener) -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        taken = server.sockets[0].getsockname()[1]
        listener.prefer(taken)
        listener.want()
        await until(lambda: listener.address)
        assert listener.address != f"127.0.0.1:{taken}"
        assert await ask(listener.address) == REPLY
        server.close()

    listening(("127.0.0.1", 0), work)


def test_a_fixed_port_that_is_taken_is_a_warning() -> None:
    async def body() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        service = PeerService(lambda job: None, lambda challenge: False, Traffic())
        listener = Listener(service, lambda: ("127.0.0.1", port), None)
        listener.want()
        await asyncio.wait_for(until(lambda: listener.warning), 10)
        assert "no other node can reach this agent" in listener.warning
        assert not listener.address
        server.close()
        await listener.close()

    asyncio.run(body())


def test_an_address_that_does_not_lead_here_is_a_warning() -> None:
    """192.0.2.0/24 is reserved for documentation: no host has it."""

    async def work(listener: Listener) -> None:
        listener.want()
        await until(lambda: listener.warning)
        assert listener.address.startswith("192.0.2.1:")
        assert "check peers.advertise" in listener.warning

    listening(("192.0.2.1", 0), work)


def test_a_translated_port_that_is_our_own_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advertise, "way_out", lambda: "127.0.0.2")

    async def body() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        host = Host(member("b"))
        service = PeerService(lambda job: host, lambda challenge: False, Traffic())
        listener = Listener(service, lambda: ("192.0.2.1", port), None)
        listener.want()
        await asyncio.wait_for(until(lambda: listener.address), 10)
        assert listener.address == f"192.0.2.1:{port}"
        assert await ask(f"127.0.0.2:{port}") == REPLY
        server.close()
        await listener.close()

    asyncio.run(body())


def test_one_port_for_everything_is_told_under_an_address_that_others_have() -> None:
    async def work(listener: Listener) -> None:
        listener.serve_on("0.0.0.0", 7641)
        assert listener.address == "127.0.0.1:7641"

    listening(("127.0.0.1", 0), work)
