"""What is under way, and for what there is room."""

from __future__ import annotations

from scoutd.agent.flight import MOST_OF_A_KIND, Flight
from scoutd.agent.messages import Outgoing, Probe, Relay, Request, Sync


def out(node: str, request: Request) -> Outgoing:
    return Outgoing(node, f"{node}:1", request, 0)


def begin(flight: Flight, node: str, request: Request, now_ns: int = 0) -> Outgoing:
    assert flight.room(node, request)
    sent = out(node, request)
    flight.begin(sent, now_ns)
    return sent


def test_synchronisations_that_wait_leave_room_for_probes_of_the_same_peer() -> None:
    flight = Flight(16)
    for _ in range(MOST_OF_A_KIND):
        begin(flight, "b", Sync(()))
    assert not flight.room("b", Sync(()))
    assert flight.room("b", Probe((), 1))
    assert flight.room("c", Sync(()))


def test_synchronisations_take_half_of_the_room_and_no_more() -> None:
    flight = Flight(6)
    for node in "bcd":
        begin(flight, node, Sync(()))
    assert not flight.room("e", Sync(()))
    for node in "bcd":
        begin(flight, node, Relay("x", "x:1"))
    assert not flight.room("e", Probe((), 1))


def test_what_ended_leaves_its_room_and_tells_when_it_began() -> None:
    flight = Flight(2)
    first = begin(flight, "b", Probe((), 1), 5)
    begin(flight, "b", Probe((), 1), 6)
    assert not flight.room("c", Probe((), 1))
    assert flight.end(first) == 5
    assert flight.room("c", Probe((), 1))
    assert flight.count(Probe) == 1
    assert flight.end(first) is None
    assert flight.end(out("d", Probe((), 1))) is None


def test_who_is_overdue_or_away_is_not_waited_for() -> None:
    flight = Flight(16)
    begin(flight, "b", Sync(()), 10)
    begin(flight, "c", Sync(()), 20)
    begin(flight, "d", Probe((), 1), 20)
    assert flight.waiting(Sync, 5, ()) == 2
    assert flight.waiting(Sync, 10, ()) == 1
    assert flight.waiting(Sync, 5, {"c"}) == 1
