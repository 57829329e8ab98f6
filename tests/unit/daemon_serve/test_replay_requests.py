"""Requests for replays: told here and elsewhere, once, with ids that only grow."""

from __future__ import annotations

from scoutd.agent.messages import Order, OrderReply
from scoutd.daemon.serve.replay_requests import ReplayRequests
from scoutd.proto.replay import Request
from tests.unit.daemon_serve import fakes

S = 1_000_000_000


class Desk:
    """Requests of an agent whose ranks are 0, which is told, and 1, which may not be."""

    def __init__(self) -> None:
        self.told: list[Request] = []
        self.clock = fakes.FakeClock()
        self.requests = ReplayRequests(lambda: (), self.tell, fakes.nowhere, self.clock)

    def tell(self, job: str, request: Request) -> dict[int, bool]:
        self.told.append(request)
        return {1: False, 0: True}


def test_an_order_is_carried_out_once() -> None:
    desk, order = Desk(), Order(7, 0xB10C, 2, 60 * S)
    replies = [desk.requests.carry_out("job", order) for _ in range(3)]
    assert replies == [OrderReply((0,), (1,))] * 3
    (request,) = desk.told
    assert (request.request, request.recipe, request.variants) == (7, 0xB10C, 2)
    assert request.expires_ns == desk.clock() + 60 * S


def test_orders_of_others_are_bounded_and_later_ids_are_higher() -> None:
    desk = Desk()
    desk.requests.carry_out("job", Order(1 << 50, 0, 1 << 20, 1 << 62))
    (request,) = desk.told
    assert request.variants == 64
    assert request.expires_ns == desk.clock() + 3600 * S
    assert desk.requests.last == 1 << 50


def test_what_is_remembered_is_bounded() -> None:
    desk = Desk()
    for number in range(1, 1000):
        desk.requests.carry_out("job", Order(number, 0, 1, S))
    assert len(desk.requests.known) <= 256
