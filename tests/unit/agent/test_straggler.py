"""Stragglers: slow in three rounds, against the others, beyond floors and noise."""

from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoutd.agent.consensus import Floors
from scoutd.agent.straggler import (
    FLOORS,
    GROUPS_LIMIT,
    Judgement,
    Stragglers,
    StragglerSettings,
    exceeds,
)
from scoutd.agent.verdict import Status

Round = list["float | None"]


def observe(*rounds: Round, rule: Stragglers | None = None, scale: float = 0.1) -> Judgement:
    """The judgement after the last round; times in tenths of a second."""
    rule = rule or Stragglers()
    for times in rounds:
        judged = rule.observe("recipe", {r: t if t is None else t * scale for r, t in enumerate(times)})
    return judged


HEALTHY: Round = [1.0, 1.02, 0.99, 1.01]
SLOW: Round = [1.0, 1.02, 1.5, 1.01]


def test_three_rounds_confirm() -> None:
    rule = Stragglers()
    assert observe(SLOW, rule=rule).reason == "round 1 of 3"
    assert observe(SLOW, rule=rule).confirmed == ()
    found = observe(SLOW, rule=rule)
    assert found.confirmed == (2,)
    assert found.factors == (pytest.approx(1.5 / 1.01),)
    assert found.round.status is Status.ATTRIBUTED
    assert found.reason == ""


def test_one_good_round_clears() -> None:
    rule = Stragglers()
    assert observe(SLOW, SLOW, HEALTHY, rule=rule).reason == "nobody is slow in every round"
    assert observe(SLOW, SLOW, rule=rule).confirmed == ()
    assert observe(SLOW, rule=rule).confirmed == (2,)


@pytest.mark.parametrize("factor", [1.3, 2.0, 10.0])
def test_a_slowdown_of_all_names_nobody(factor: float) -> None:
    slower: Round = [factor * t for t in (1.0, 1.02, 0.99, 1.01)]
    assert observe(HEALTHY, slower, slower, slower).confirmed == ()


def test_a_fast_rank_is_no_straggler() -> None:
    assert observe(*[[1.0, 1.02, 0.3, 1.01]] * 3).confirmed == ()
    assert observe(*[[1.0, 1.02, 0.3]] * 3).confirmed == ()


def test_two_slow_of_five_are_both_named_two_of_four_are_not() -> None:
    assert observe(*[[1.0, 1.5, 0.99, 1.8, 1.01]] * 3).confirmed == (1, 3)
    assert observe(*[[1.0, 1.5, 0.99, 1.5]] * 3).confirmed == ()


def test_missing_times() -> None:
    rule = Stragglers()
    observe(SLOW, SLOW, rule=rule)
    absent: Round = [1.0, 1.02, None, 1.01]
    assert observe(absent, rule=rule).confirmed == ()
    assert observe(SLOW, SLOW, rule=rule).confirmed == ()
    assert observe(SLOW, rule=rule).confirmed == (2,)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, 0.0, -1.0])
def test_a_round_of_too_few_is_not_remembered(bad: float | None) -> None:
    rule = Stragglers()
    observe(SLOW, SLOW, rule=rule)
    assert observe([bad, bad, 1.5, 1.0], rule=rule).reason == "too few: 2 of 4 have a time"
    assert observe(SLOW, rule=rule).confirmed == (2,)


def test_too_many_silent() -> None:
    most: Round = [1.0, 1.02, 1.5, None, None]
    assert observe(*[most] * 3).reason == "no strict majority"


def test_groups_under_three_name_nobody() -> None:
    assert observe(*[[1.0, 5.0]] * 4).confirmed == ()


def test_floors() -> None:
    quiet: Round = [1.0, 1.001, 1.09, 0.999]
    assert observe(quiet, quiet, quiet).confirmed == ()
    assert observe(*[[1.0, 1.001, 1.12, 0.999]] * 3).confirmed == (2,)
    assert observe(*[SLOW] * 3, scale=0.0003).confirmed == ()
    assert observe(*[SLOW] * 3, scale=0.005).confirmed == (2,)


def test_noise_hides_what_is_like_it() -> None:
    noisy: list[Round] = [[0.7, 1.3, 1.4, 1.0, 0.8], [1.3, 0.7, 1.4, 0.9, 1.1], [1.2, 0.7, 1.5, 0.8, 1.3]]
    assert observe(*noisy).confirmed == ()


def test_recipes_and_groups_apart() -> None:
    rule = Stragglers()
    slow = dict(enumerate([0.1, 0.1, 0.2]))
    other = {rank + 3: time for rank, time in slow.items()}
    for _ in range(2):
        rule.observe("one", slow)
        rule.observe("one", other)
        assert rule.observe("two", slow).confirmed == ()
    assert rule.observe("one", other).confirmed == (5,)
    rule.clear()
    assert rule.observe("one", slow).confirmed == ()


def test_memory_is_bounded() -> None:
    rule = Stragglers()
    for recipe in range(GROUPS_LIMIT + 50):
        rule.observe(recipe, {0: 1.0, 1: 1.0, 2: 1.0})
    assert len(rule._rounds) == GROUPS_LIMIT


def test_settings() -> None:
    once = Stragglers(StragglerSettings(rounds=1, floors=Floors(0.6)))
    assert observe(SLOW, rule=once).confirmed == ()
    assert observe(SLOW, rule=Stragglers(StragglerSettings(rounds=1))).confirmed == (2,)


def test_a_hundred_thousand_members_are_judged_in_a_moment() -> None:
    dice = random.Random(1)
    rounds = [{rank: 0.005 * dice.gauss(1, 0.03) for rank in range(100_000)} for _ in range(3)]
    for times in rounds:
        times[77_777] *= 1.5
    began = time.process_time()
    assert Stragglers().judge(rounds).confirmed == (77_777,)
    assert time.process_time() - began < 5.0


@given(st.lists(st.lists(st.integers(1, 40), min_size=5, max_size=5), min_size=3, max_size=3))
def test_nobody_is_passed_over_before_he_is_measured(rounds: list[list[int]]) -> None:
    """The rule, rank by rank, without the shortcut that large groups need."""
    window = [dict(enumerate(map(float, times))) for times in rounds]
    slow = tuple(
        rank
        for rank in range(5)
        if exceeds(
            [known[rank] for known in window],
            [[t for other, t in known.items() if other != rank] for known in window],
            2.5,
            FLOORS,
        )
    )
    judged = Stragglers().judge(window)
    assert judged.confirmed == (slow if 2 * (5 - len(slow)) > 5 else ())
