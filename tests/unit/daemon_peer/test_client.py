"""What the client believes, and how many channels it keeps."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from scoutd.agent.messages import Probe
from scoutd.daemon.errors import PeerError
from scoutd.daemon.peer import address, seal
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.server import SERVICE
from scoutd.daemon.peer.sessions import Sessions
from scoutd.daemon.peer.traffic import Traffic
from scoutd.proto.v1 import peer_pb2 as pb
from tests.unit.daemon_peer.wire import MARK, REPLY, Peer, member, scenario

PROBE = Probe((MARK,), 0)


def test_a_server_without_the_key_is_not_believed() -> None:
    """It has a genuine reply to an earlier request, and sends that."""

    async def work(peer: Peer) -> None:
        body = pb.Greeting(challenge=bytes(16)).SerializeToString()
        asked = seal.request(member(), seal.HELLO, b"", 0, body)
        genuine = await peer.send(seal.HELLO, asked.SerializeToString())

        async def recorded(data: bytes, context: object) -> pb.Sealed:
            return genuine

        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            recorded, response_serializer=pb.Sealed.SerializeToString
        )
        handlers = dict.fromkeys(("Hello", "Probe"), handler)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        with pytest.raises(PeerError) as caught:
            await peer.client.ask(member(), "b", f"127.0.0.1:{port}", PROBE, 5.0)
        assert caught.value.reason == "forged"
        await server.stop(0)

    scenario(work)


def test_another_node_behind_the_address_is_not_the_one_that_was_asked() -> None:
    async def work(peer: Peer) -> None:
        client = PeerClient(Traffic())
        with pytest.raises(PeerError) as caught:
            await client.ask(member(), "c", peer.address, PROBE, 5.0)
        assert caught.value.reason == "unreachable"
        await client.close()

    scenario(work)


def test_a_peer_that_lost_our_session_is_greeted_again() -> None:
    async def work(peer: Peer) -> None:
        traffic = Traffic()
        client = PeerClient(traffic)
        await client.ask(member(), "b", peer.address, PROBE, 5.0)
        peer.service.sessions = Sessions()  # type: ignore[misc]
        assert await client.ask(member(), "b", peer.address, PROBE, 5.0) == REPLY
        assert traffic.requests == {("Probe", "ok"): 2}
        await client.close()

    scenario(work)


def test_channels_are_bounded_and_idle_ones_are_closed() -> None:
    async def work(peer: Peer) -> None:
        port = address.parse(peer.address)[1]
        client = PeerClient(Traffic(), most=2, idle_s=0.0)
        for host in ("127.0.0.1", "localhost", "127.0.0.1"):
            await client.ask(member(), "b", f"{host}:{port}", PROBE, 5.0)
        with pytest.raises(PeerError):
            await client.ask(member(), "b", "127.0.0.1:1", PROBE, 2.0)
        assert client.channels == 2
        client.tidy()
        assert client.channels == 0
        await client.close()

    scenario(work)


@pytest.mark.parametrize(
    "bad", ["unix:/tmp/x", "dns://evil/x:1", "x", "x:0", "x:99999", "[::1]", "a b:1", ""]
)
def test_an_address_that_is_none_is_a_failure(bad: str) -> None:
    async def work(peer: Peer) -> None:
        with pytest.raises(PeerError) as caught:
            await peer.client.ask(member(), "", bad, PROBE, 1.0)
        assert caught.value.reason == "address"

    scenario(work)


@pytest.mark.parametrize(
    ("text", "host", "port", "target"),
    [
        ("10.0.0.1:7641", "10.0.0.1", 7641, "ipv4:10.0.0.1:7641"),
        ("[fd00::1]:80", "fd00::1", 80, "ipv6:[fd00::1]:80"),
        ("node-1.cluster.local:1", "node-1.cluster.local", 1, "dns:///node-1.cluster.local:1"),
    ],
)
def test_addresses(text: str, host: str, port: int, target: str) -> None:
    assert address.parse(text) == (host, port)
    assert address.join(host, port) == text
    assert address.target(text) == target


def test_a_default_port_is_used_where_there_is_none() -> None:
    assert address.parse("node-1", 7641) == ("node-1", 7641)
    assert address.parse("fd00::1", 7641) == ("fd00::1", 7641)
    assert address.parse("[fd00::1]", 7641) == ("fd00::1", 7641)
