"""What the configuration may say about peers, and what is refused with a clear text."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from scoutd.daemon import configsource
from scoutd.daemon.clock import monotonic_ns
from scoutd.daemon.config import Config, PeersSection
from scoutd.daemon.errors import ConfigError
from scoutd.daemon.peer import advertise
from scoutd.daemon.peer.directory import Directory
from scoutd.daemon.peer.neighbours import Neighbours
from scoutd.daemon.peer.plan import PeerPlan, peer_plan
from scoutd.daemon.peer.traffic import Traffic


def neighbours(plan: PeerPlan) -> Neighbours:
    return Neighbours(
        plan, "n0", 1, Traffic(), monotonic_ns, lambda: None, lambda error: None, lambda address: None
    )


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (PeerPlan(advertise="a b"), "peers.advertise"),
        (PeerPlan(interface="nope0"), "no such interface; there are .*lo"),
        (PeerPlan(addresses="a:1,b:x"), "peers.addresses"),
        (PeerPlan(dns="dns://evil/x"), "peers.dns"),
        (PeerPlan(key_file="/does/not/exist"), "peers.key_file"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(plan: PeerPlan, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        neighbours(plan)


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("short")
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        neighbours(PeerPlan(key_file=str(secret)))


def test_tls_files_go_together() -> None:
    with pytest.raises(ConfigError, match="all three or none"):
        peer_plan(PeersSection(tls_cert="a.pem"), 0)
    assert peer_plan(PeersSection(), 0).tls is None


def test_tls_files_that_are_none_are_refused(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).write_text("not PEM")
    names = {f"tls_{name}": str(tmp_path / name) for name in ("cert", "key", "ca")}
    with pytest.raises(ConfigError, match="is not PEM"):
        neighbours(peer_plan(PeersSection(**names), 0))


@pytest.mark.parametrize(
    ("told", "chosen"),
    [
        ("10.0.0.7", ("10.0.0.7", 0)),
        ("10.0.0.7:7000", ("10.0.0.7", 7000)),
        ("[fd00::7]:7000", ("fd00::7", 7000)),
        ("fd00::7", ("fd00::7", 0)),
        ("node-7.cluster.local", ("node-7.cluster.local", 0)),
    ],
)
def test_an_advertised_address(told: str, chosen: tuple[str, int]) -> None:
    assert advertise.choose(told, "") == chosen


def test_an_interface_stands_for_its_address() -> None:
    assert advertise.choose("", "lo") == ("127.0.0.1", 0)


def test_without_any_word_it_is_the_way_out_of_this_host() -> None:
    host, port = advertise.choose("", "")
    assert advertise.is_local(host)
    assert port == 0


def test_an_address_is_tried_from_here() -> None:
    async def body() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await advertise.reached("127.0.0.1", port) == ""
        server.close()
        await server.wait_closed()
        assert await advertise.reached("127.0.0.1", port) != ""

    asyncio.run(body())


def test_a_list_of_addresses_gets_the_default_port_and_no_duplicates() -> None:
    directory = Directory("a, b:1 ,[fd00::1]:2,a:7641", "", 7641)
    assert directory.addresses == ("a:7641", "b:1", "[fd00::1]:2")


def test_a_name_is_resolved_again_and_keeps_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[str] | None] = [["10.0.0.1", "10.0.0.2"], None, ["fd00::3"]]

    async def body() -> None:
        directory = Directory("", "agents.svc", 7641)
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str, port: int, **options: object) -> list[object]:
            assert (host, port) == ("agents.svc", 7641)
            answer = answers.pop(0)
            if answer is None:
                raise socket.gaierror(socket.EAI_AGAIN, "temporary failure")
            return [(0, 0, 0, "", (address, port)) for address in answer]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        await directory.resolve()
        assert directory.addresses == ("10.0.0.1:7641", "10.0.0.2:7641")
        await directory.resolve()
        assert directory.addresses == ("10.0.0.1:7641", "10.0.0.2:7641")
        assert "temporary failure" in directory.warning
        await directory.resolve()
        assert directory.addresses == ("[fd00::3]:7641",)
        assert not directory.warning

    asyncio.run(body())


def test_knobs_of_the_exchange_come_from_the_configuration() -> None:
    environ = {"SCOUTD_EXCHANGE_FANOUT": "5", "SCOUTD_ADVERTISE": "10.1.2.3", "SCOUTD_PEERS_DNS": "agents"}
    config = configsource.load(None, environ)
    assert config.exchange_settings().fanout == 5
    assert config.peers.advertise == "10.1.2.3"
    assert config.private_bind == "127.0.0.1"
    assert Config().exchange_settings().relays == 3
    with pytest.raises(ConfigError, match="exchange.fanout takes a whole number from 1 to 16"):
        configsource.load(None, {"SCOUTD_EXCHANGE_FANOUT": "0"})
