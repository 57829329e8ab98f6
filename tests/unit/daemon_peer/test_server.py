"""Whom the Peer service refuses, with which status, and that it counts them."""

from __future__ import annotations

import grpc
import pytest

from scoutd.agent.messages import Probe
from scoutd.daemon.errors import PeerError
from scoutd.daemon.peer import messagecodec, seal
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.traffic import Traffic
from scoutd.proto.v1 import peer_pb2 as pb
from tests.unit.daemon_peer.wire import MARK, REPLY, Peer, member, scenario

Code = grpc.StatusCode
PROBE = Probe((MARK,), 0)
BODY = messagecodec.encode(PROBE)


def test_a_member_is_heard_and_answered() -> None:
    async def work(peer: Peer) -> None:
        client = PeerClient(Traffic())
        assert await client.ask(member(), "b", peer.address, PROBE, 5.0) == REPLY
        assert await client.ask(member(), "b", peer.address, PROBE, 5.0) == REPLY
        assert peer.host.heard == [PROBE, PROBE]
        assert peer.traffic.answered == {"Hello": 1, "Probe": 2}
        await client.close()

    scenario(work)


@pytest.mark.parametrize(
    ("who", "code", "reason"),
    [
        (member(key=bytes(32)), Code.UNAUTHENTICATED, "key"),
        (member(job="other"), Code.NOT_FOUND, "job"),
        (member(generation=2), Code.FAILED_PRECONDITION, "stale_generation"),
        (member(generation=4), Code.UNAVAILABLE, "future_generation"),
    ],
)
def test_strangers_are_refused(who: seal.Membership, code: Code, reason: str) -> None:
    async def work(peer: Peer) -> None:
        for kind in (seal.HELLO, *messagecodec.KINDS.values()):
            found, _ = await peer.refusal(kind, seal.request(who, kind, bytes(16), 1, BODY))
            assert found == code
        assert peer.traffic.refused == {reason: 1 + len(messagecodec.KINDS)}
        assert not peer.host.heard

    scenario(work)


def test_a_job_that_is_not_shared_hears_nobody() -> None:
    async def work(peer: Peer) -> None:
        peer.host.member = None
        code, _ = await peer.refusal("Probe", seal.request(member(), "Probe", bytes(16), 1, BODY))
        assert code == Code.NOT_FOUND

    scenario(work)


def test_nothing_is_heard_twice() -> None:
    async def work(peer: Peer) -> None:
        session = await peer.session(member())
        sealed = seal.request(member(), "Probe", session, 1, BODY)
        await peer.send("Probe", sealed.SerializeToString())
        assert await peer.refusal("Probe", sealed) == (
            Code.UNAUTHENTICATED,
            "this counter was used before, or is too old",
        )
        assert peer.traffic.refused == {"counter": 1}
        assert len(peer.host.heard) == 1

    scenario(work)


def test_what_was_sent_to_an_earlier_life_is_not_heard() -> None:
    async def work(peer: Peer) -> None:
        code, text = await peer.refusal("Probe", seal.request(member(), "Probe", bytes(16), 1, BODY))
        assert (code, text) == (Code.UNAUTHENTICATED, "unknown session")

    scenario(work)


def test_a_request_cannot_be_turned_into_another() -> None:
    async def work(peer: Peer) -> None:
        session = await peer.session(member())
        sealed = seal.request(member(), "Probe", session, 1, BODY)
        code, _ = await peer.refusal("Sync", sealed)
        assert code == Code.UNAUTHENTICATED
        sealed.body = messagecodec.encode(Probe((MARK,), 7))
        code, _ = await peer.refusal("Probe", sealed)
        assert code == Code.UNAUTHENTICATED
        assert peer.traffic.refused == {"key": 2}

    scenario(work)


def test_malformed_and_over_long_messages_are_refused() -> None:
    async def work(peer: Peer) -> None:
        session = await peer.session(member())
        cases = [
            (b"\xff\xff\xff", Code.INVALID_ARGUMENT),
            (b"", Code.INVALID_ARGUMENT),
            (pb.Sealed(header=b"\xff").SerializeToString(), Code.INVALID_ARGUMENT),
            (seal.request(member(), "Probe", session, 1, b"\xff").SerializeToString(), Code.INVALID_ARGUMENT),
            (pb.Sealed(header=b"x", body=bytes(3 << 20)).SerializeToString(), Code.RESOURCE_EXHAUSTED),
        ]
        for data, expected in cases:
            code, _ = await peer.refusal("Probe", data)
            assert code == expected
        assert peer.traffic.refused == {"malformed": 4, "too_long": 1}

    scenario(work)


def test_a_greeting_without_a_challenge_is_refused() -> None:
    async def work(peer: Peer) -> None:
        code, _ = await peer.refusal(seal.HELLO, seal.request(member(), seal.HELLO, b"", 0, b""))
        assert code == Code.INVALID_ARGUMENT
        assert len(peer.service.sessions) == 0

    scenario(work)


def test_another_protocol_version_is_refused() -> None:
    async def work(peer: Peer) -> None:
        header = pb.Header(protocol=99, job="job", generation=3, node="a").SerializeToString()
        code, _ = await peer.refusal("Probe", pb.Sealed(header=header))
        assert code == Code.FAILED_PRECONDITION
        assert peer.traffic.refused == {"protocol": 1}

    scenario(work)


def test_an_agent_that_calls_itself_is_told_so() -> None:
    async def work(peer: Peer) -> None:
        with pytest.raises(PeerError) as caught:
            await peer.client.ask(member("b"), "", peer.address, PROBE, 5.0)
        assert caught.value.reason == "self"
        assert not peer.host.namesakes

    scenario(work)


def test_another_agent_of_the_same_name_is_told_so_on_both_sides() -> None:
    async def work(peer: Peer) -> None:
        client = PeerClient(Traffic())
        with pytest.raises(PeerError) as caught:
            await client.ask(member("b"), "", peer.address, PROBE, 5.0)
        assert caught.value.reason == "name"
        assert peer.host.namesakes == ["127.0.0.1"]
        await client.close()

    scenario(work)
