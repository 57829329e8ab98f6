"""Sketches of times: merged in any order, small, and with the slowest in them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from scoutd.agent import timesketch
from scoutd.agent.timesketch import MOST, MOST_CODE, SAMPLE, SLOWEST, code_of, merged, ns_of, sample

times = st.dictionaries(st.integers(0, 10**5), st.integers(1, MOST_CODE), max_size=60)


@given(st.integers(0, 2**64 - 1))
def test_a_time_survives_but_for_less_than_a_hundredth(ns: int) -> None:
    code = code_of(ns)
    assert 0 <= code <= MOST_CODE
    assert 0 <= ns - ns_of(code) <= ns / 128
    assert code_of(ns_of(code)) == code


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_codes_are_in_the_order_of_times(a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert code_of(low) <= code_of(high)


@given(times, st.integers(0, 2**64 - 1), st.randoms(use_true_random=False))
def test_parts_merge_to_the_same_in_any_order_and_with_duplicates(
    known: dict[int, int], salt: int, dice: random.Random
) -> None:
    parts = [dict(dice.sample(sorted(known.items()), len(known) // 2)) for _ in range(3)]
    parts += [{rank: code} for rank, code in known.items()]
    dice.shuffle(parts)
    found: timesketch.Times = ()
    for part in parts:
        found = merged(salt, (*found, *merged(salt, part.items())))
    assert found == merged(salt, known.items())
    assert len(found) <= MOST
    assert set(sample(salt, dict(found))) == set(sample(salt, known))


@given(times)
def test_the_slowest_are_in_it(known: dict[int, int]) -> None:
    slowest = sorted(known, key=lambda rank: (-known[rank], rank))[:SLOWEST]
    assert set(slowest) <= {rank for rank, _ in merged(7, known.items())}


def test_rounds_sample_differently_and_evenly() -> None:
    hits = [0] * 64
    for salt in range(2000):
        for rank in sample(salt, range(64)):
            hits[rank] += 1
    usual = 2000 * SAMPLE / 64
    assert all(0.7 * usual < count < 1.3 * usual for count in hits)
