"""What the exchange may expect of a network; the simulated one and gRPC pass the same suite."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scoutd.agent.messages import (
    Blob,
    Layout,
    LayoutReply,
    Mark,
    Order,
    OrderReply,
    Probe,
    ProbeReply,
    Push,
    PushReply,
    Relay,
    RelayReply,
    Reply,
    Request,
    Sync,
    SyncReply,
)
from tests.contract.wires import GrpcWire, SimulatedWire, Wire

MARK = Mark("a", "a:1", 3, 7, 11, 7)
BLOB = Blob(MARK, b"report", 5)
ANSWERS: dict[type, tuple[Request, Reply]] = {
    Probe: (Probe((MARK,), 7), ProbeReply((MARK,), 0)),
    Relay: (Relay("c", "c:1"), RelayReply(True, (MARK,))),
    Sync: (Sync((MARK,)), SyncReply((BLOB,), ("a",), (MARK,))),
    Push: (Push((BLOB,)), PushReply(1)),
    Order: (Order(7, 0xB10C, 2, 60), OrderReply((0, 1), (2,))),
    Layout: (Layout(), LayoutReply(b"what is seen here")),
}


@pytest.fixture(params=[SimulatedWire, GrpcWire])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    made: Wire = request.param()
    yield made
    made.close()


def answer(request: Request) -> Reply:
    expected, reply = ANSWERS[type(request)]
    assert request == expected
    return reply


def pair(wire: Wire) -> Wire:
    for node in ("a", "b"):
        wire.start(node, answer)
    return wire


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_request_has_its_reply(wire: Wire, kind: type) -> None:
    request, reply = ANSWERS[kind]
    assert pair(wire).ask_all("a", "b", [request], 2.0) == [reply]


def test_many_requests_at_once_settle_once_each(wire: Wire) -> None:
    requests = [request for request, _ in ANSWERS.values()] * 10
    replies = [reply for _, reply in ANSWERS.values()] * 10
    assert pair(wire).ask_all("a", "b", requests, 5.0) == replies


def test_a_dead_agent_is_a_failure_at_once(wire: Wire) -> None:
    pair(wire).kill("b")
    since = time.monotonic()
    assert wire.ask_all("a", "b", [Probe((MARK,), 7)], 20.0) == [None]
    assert time.monotonic() - since < 10


def test_a_stopped_agent_is_a_failure_after_the_time_out(wire: Wire) -> None:
    pair(wire).stop("b")
    assert wire.ask_all("a", "b", [Probe((MARK,), 7), Sync((MARK,))], 0.3) == [None, None]


def test_an_agent_that_comes_back_is_heard_again(wire: Wire) -> None:
    request, reply = ANSWERS[Probe]
    assert pair(wire).ask_all("a", "b", [request], 2.0) == [reply]
    wire.kill("b")
    assert wire.ask_all("a", "b", [request], 0.5) == [None]
    wire.start("b", answer)
    deadline = time.monotonic() + 10
    while wire.ask_all("a", "b", [request], 1.0) == [None]:
        assert time.monotonic() < deadline
    assert wire.ask_all("a", "b", [request], 2.0) == [reply]
