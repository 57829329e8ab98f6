"""What is due when: the same on all ranks, everything in turn, requests at a step that all know in time."""

from __future__ import annotations

import time
import weakref
from collections import Counter

from scoutd.proto import replay
from scoutd.proto.replay import RecipeKind, RecipeState
from scoutd.shim.replay.cadence import (
    AHEAD_S,
    MAX_AHEAD,
    MIN_AHEAD,
    REQUESTED,
    Due,
    order_of,
    scheduled,
    start_of,
)
from scoutd.shim.replay.recipes import Peers, Recipe
from scoutd.shim.replay.requests import Requests

FAR_NS = time.monotonic_ns() + 3_600_000_000_000


class FakeChannel:
    """Notes of one group, seen by all of its ranks."""

    def __init__(self, notes: dict[str, bytes]) -> None:
        self._notes = notes
        self.asked: dict[str, object] = {}

    def tell(self, name: str, content: bytes) -> None:
        self._notes[name] = content

    def ask(self, name: str, answer: object) -> None:
        self.asked[name] = answer

    def forget(self, name: str) -> None:
        self.asked.pop(name, None)

    def turn(self) -> None:
        for name, answer in list(self.asked.items()):
            if name in self._notes:
                self.forget(name)
                answer(self._notes[name])  # type: ignore[operator]


def recipes(count: int, ranks: tuple[int, ...]) -> list[Recipe]:
    made = []
    for index in range(count):
        recipe = Recipe(index, RecipeKind.BLOCK, f"blocks.{index}", "", weakref.ref(Peers(())))
        recipe.peers = Peers(ranks)
        recipe.state = RecipeState.READY
        made.append(recipe)
    return made


def test_every_recipe_is_replayed_once_in_a_cycle() -> None:
    due = [each for step in range(1, 20 * 8 + 1) for each in scheduled(step, 20, 3, 12)]
    assert len(due) == 3 * 8
    assert set(Counter(each.place for each in due).values()) == {2}
    assert {each.key for each in due} == {20 * k for k in range(1, 9)}


def test_nothing_is_due_when_replays_are_off_or_there_are_no_recipes() -> None:
    assert not any(scheduled(step, 0, 3, 12) for step in range(100))
    assert not any(scheduled(step, 1, 3, 0) for step in range(100))
    assert scheduled(0, 1, 1, 1) == []


def test_more_variants_than_recipes_replay_each_once() -> None:
    assert [each.place for each in scheduled(5, 5, 64, 3)] == [0, 1, 2]


def test_a_request_starts_far_enough_ahead() -> None:
    assert start_of(100, 0.1) == 100 + round(AHEAD_S / 0.1)
    assert start_of(100, 60.0) == 100 + MIN_AHEAD
    assert start_of(100, 0.0) == 100 + MIN_AHEAD
    assert start_of(100, 1e-9) == 100 + MAX_AHEAD


def test_an_order_is_spread_over_steps() -> None:
    order = order_of(7, 50, [0, 1, 2], times=2, variants=4)
    assert [len(order.due(step)) for step in range(48, 54)] == [0, 0, 4, 2, 0, 0]
    assert order.due(50)[0] == Due(REQUESTED | 7, 0)
    assert order.end == 52


def test_all_ranks_carry_out_a_request_after_the_same_step() -> None:
    notes: dict[str, bytes] = {}
    channels = [FakeChannel(notes) for _ in range(3)]
    ranks = [Requests(rank, channels[rank]) for rank in range(3)]  # type: ignore[arg-type]
    known = [recipes(4, (0, 1, 2)) for _ in range(3)]
    request = replay.Request(9, 0, FAR_NS, 1)
    ran: list[list[tuple[int, int, int]]] = [[], [], []]
    for step in range(1, 60):
        for rank, requests in enumerate(ranks):
            if step >= 3 + 4 * rank:  # each hears of it at another step
                requests.read(request, time.monotonic_ns())
            requests.take(step, 0.1, known[rank], 2)
            ran[rank] += [(step, due.key, due.place) for due in requests.due(step)]
            requests.done(step)
            channels[rank].turn()
    assert [place for _, _, place in ran[0]] == [0, 1, 2, 3]
    assert ran[0] == ran[1] == ran[2]
    assert {key for _, key, _ in ran[0]} == {REQUESTED | 9}
    assert [requests.finished for requests in ranks] == [9, 9, 9]


def test_a_rank_that_hears_too_late_does_not_take_part() -> None:
    notes: dict[str, bytes] = {}
    leader, late = FakeChannel(notes), FakeChannel(notes)
    first, other = Requests(0, leader), Requests(1, late)  # type: ignore[arg-type]
    known = recipes(2, (0, 1))
    request = replay.Request(3, 0, FAR_NS, 1)
    first.read(request, time.monotonic_ns())
    first.take(1, 10.0, known, 1)
    other.read(request, time.monotonic_ns())
    other.take(30, 10.0, known, 1)
    late.turn()
    other.take(31, 10.0, known, 1)
    assert not any(other.due(step) for step in range(31, 60))
    assert other.finished == 3


def test_a_request_for_one_recipe_runs_it_alone_and_an_unknown_one_is_refused() -> None:
    channel = FakeChannel({})
    requests = Requests(0, channel)  # type: ignore[arg-type]
    known = recipes(3, (0,))
    requests.read(replay.Request(5, known[1].recipe, FAR_NS, 2), time.monotonic_ns())
    requests.take(10, 0.1, known, 3)
    assert [due.place for step in range(10, 20) for due in requests.due(step)] == [1, 1]
    requests.read(replay.Request(6, 12345, FAR_NS, 1), time.monotonic_ns())
    requests.take(11, 0.1, known, 3)
    assert requests.finished == 6


def test_an_expired_request_is_refused() -> None:
    requests = Requests(1, FakeChannel({}))  # type: ignore[arg-type]
    requests.read(replay.Request(4, 0, 1000, 1), 2000)
    assert requests.finished == 4
    requests.take(1, 0.1, recipes(1, (0, 1)), 1)
    assert not any(requests.due(step) for step in range(10))
