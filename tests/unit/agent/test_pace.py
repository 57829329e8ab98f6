"""How often agents synchronise: news, size, strain."""

from __future__ import annotations

import pytest

from scoutd.agent.pace import (
    FIRST_TIMEOUT_NS,
    LEAST_TIMEOUT_NS,
    MOST_REST_NS,
    MOST_STRETCH,
    MOST_TIMEOUT_NS,
    Pace,
)
from scoutd.agent.settings import ExchangeSettings

MS = 1_000_000
INTERVAL = 150 * MS


def pace() -> Pace:
    return Pace(ExchangeSettings(sync_interval_s=0.15))


def test_news_are_told_at_full_speed_whatever_the_size() -> None:
    one = pace()
    assert [one.next_ns(news, 10_000) for news in (1, 2, 3)] == [INTERVAL] * 3


@pytest.mark.parametrize(("nodes", "stretch"), [(4, 1), (64, 1), (128, 2), (512, 8), (100_000, MOST_STRETCH)])
def test_without_news_the_pause_grows_with_the_marks_that_a_round_costs(nodes: int, stretch: int) -> None:
    one = pace()
    one.next_ns(7, nodes)
    assert one.next_ns(7, nodes) == stretch * INTERVAL == one.slowest_ns(nodes)


def test_answers_that_take_long_slow_the_rounds_down_and_quick_ones_do_not() -> None:
    one = pace()
    for _ in range(50):
        answered(one, 20)
    assert one.next_ns(1, 4) == INTERVAL
    assert not one.strained
    for _ in range(50):
        answered(one, 900)
    assert one.next_ns(2, 4) == pytest.approx(900 * MS, rel=0.02)
    assert one.next_ns(3, 1000) == MOST_REST_NS
    assert one.strained


def test_among_many_who_waits_for_answers_rests_longer_than_they_take() -> None:
    one = pace()
    for _ in range(4):
        answered(one, 200)
    pauses = [one.next_ns(news, nodes) // MS for news, nodes in enumerate((4, 64, 128, 512, 10_000), 1)]
    assert pauses == [200, 200, 400, 800, 800]


def test_before_the_first_answer_the_wait_for_it_counts_among_many() -> None:
    one = pace()
    one.oldest_ns = 700 * MS
    assert one.next_ns(1, 4) == INTERVAL
    assert one.next_ns(2, 128) == 1400 * MS
    assert not one.strained


def test_among_many_one_at_a_time_until_answers_are_known_to_be_quick() -> None:
    one = pace()
    usual = ExchangeSettings().fanout
    assert [one.fanout(nodes) for nodes in (4, 64, 65)] == [usual, usual, 1]
    answered(one, 5)
    assert one.fanout(1000) == usual
    for _ in range(4):
        answered(one, 900)
    assert [one.fanout(nodes) for nodes in (4, 1000)] == [1, 1]


def test_one_peer_that_was_stopped_slows_nobody_down() -> None:
    one = pace()
    answered(one, 20)
    answered(one, 3000)
    assert not one.strained
    assert one.next_ns(1, 4) == INTERVAL
    other = pace()
    answered(other, 3000)
    answered(other, 20)
    assert not other.strained


def test_an_agent_that_comes_late_slows_down_and_recovers() -> None:
    one = pace()
    one.late(2000 * MS)
    assert one.next_ns(1, 4) == 2000 * MS
    assert one.strained
    for _ in range(30):
        one.late(0)
    assert one.next_ns(2, 4) == INTERVAL
    assert not one.strained


def test_the_time_out_follows_the_answers_and_doubles_with_every_loss_until_the_next() -> None:
    one = pace()
    assert one.timeout_ns(4) == FIRST_TIMEOUT_NS
    for _ in range(50):
        answered(one, 5)
    quick = one.timeout_ns(4)
    assert quick == LEAST_TIMEOUT_NS
    assert one.timeout_ns(1000) == 4 * LEAST_TIMEOUT_NS
    seen = []
    for _ in range(10):
        one.lost()
        seen.append(one.timeout_ns(4))
    assert seen[:4] == [quick, 2 * quick, 4 * quick, 8 * quick]
    assert seen[-1] == MOST_TIMEOUT_NS
    answered(one, 5)
    assert one.timeout_ns(4) == quick


def test_patience_is_short_where_answers_are_quick_and_long_where_they_are_not() -> None:
    one = pace()
    for _ in range(50):
        answered(one, 5)
    quick = one.patience_ns
    assert quick < one.timeout_ns(4)
    one.late(1000 * MS)
    assert one.patience_ns >= quick + 4000 * MS
    other = pace()
    for _ in range(50):
        answered(other, 900)
    assert other.patience_ns > 2 * 900 * MS


def answered(one: Pace, ms: int) -> None:
    one.answered(ms * MS)


def test_synchronisations_that_really_are_far_apart_are_known_to_be() -> None:
    one = pace()
    one.began(1000 * MS, 900 * MS)
    assert one.gap_ns == 0
    one.began(3000 * MS, 900 * MS)
    assert one.gap_ns == 2000 * MS
    one.began(90_000 * MS, 89_000 * MS)
    assert one.gap_ns == 2000 * MS


def test_one_slow_answer_among_quick_ones_makes_no_long_time_out() -> None:
    one = pace()
    for trip in (5, 5, 3000, 5):
        answered(one, trip)
    assert one.timeout_ns(4) == LEAST_TIMEOUT_NS
    for _ in range(4):
        answered(one, 3000)
    assert one.timeout_ns(4) == MOST_TIMEOUT_NS


def test_a_pause_of_minutes_is_forgotten_in_seconds() -> None:
    one = pace()
    one.late(300_000 * MS)
    assert one.drowning
    for _ in range(30):
        one.late(0)
    assert not one.drowning
