"""C3 and the straggler rule against deliberately dumb oracles, and what must hold for any evidence."""

from __future__ import annotations

import random
import statistics

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scoutd.agent.consensus import exact, statistical
from scoutd.agent.straggler import Stragglers
from scoutd.agent.verdict import Status
from tests.bench.statistics import Setting, detection, false_alarms

ITEMS = st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=9)
TIMES = st.lists(st.one_of(st.none(), st.integers(1, 640).map(lambda n: n / 64)), max_size=9)
"""Exact in binary, so that the order of additions does not matter."""


def dumb_exact(items: list[int | None]) -> tuple[Status, list[bool]]:
    nobody = [False] * len(items)
    for value in items:
        if value is not None and 2 * items.count(value) > len(items):
            others = [item is not None and item != value for item in items]
            if any(others):
                return (Status.ATTRIBUTED, others) if len(items) >= 3 else (Status.INCONCLUSIVE, nobody)
    whole = bool(items) and None not in items and len(set(items)) == 1
    return Status.AGREE if whole else Status.INCONCLUSIVE, nobody


def dumb_statistical(items: list[float | None]) -> tuple[Status, list[bool]]:
    nobody = [False] * len(items)
    known = [item for item in items if item is not None]
    if not known:
        return Status.INCONCLUSIVE, nobody
    centre = statistics.median(known)
    scale = 1.4826 * statistics.median(abs(item - centre) for item in known)
    if scale == 0 and len(known) > 1:
        low, _, high = statistics.quantiles(known, n=4, method="inclusive")
        scale = 0.7413 * (high - low) or (max(known) - min(known)) / 6
    flags = [item is not None and abs(item - centre) > 3.5 * scale for item in items]
    if any(flags):
        carried = len(items) >= 3 and 2 * (len(known) - sum(flags)) > len(items)
        return (Status.ATTRIBUTED, flags) if carried else (Status.INCONCLUSIVE, nobody)
    return Status.AGREE if None not in items else Status.INCONCLUSIVE, nobody


@given(ITEMS)
def test_exact(items: list[int | None]) -> None:
    found = exact(items)
    assert (found.status, list(found.outliers)) == dumb_exact(items)


@given(TIMES)
def test_statistical(items: list[float | None]) -> None:
    found = statistical(items)
    assert (found.status, list(found.outliers)) == dumb_statistical(items)


@given(TIMES, st.randoms(use_true_random=False))
def test_order_moves_the_bitmap_along(items: list[float | None], chance: random.Random) -> None:
    order = list(range(len(items)))
    chance.shuffle(order)
    straight, mixed = statistical(items), statistical([items[at] for at in order])
    assert straight.status is mixed.status
    assert [straight.outliers[at] for at in order] == list(mixed.outliers)


def dumb_stragglers(rounds: list[list[float]]) -> list[int]:
    """The definition of ``Stragglers`` on three full rounds, in the plainest words."""
    slow = []
    for rank in range(len(rounds[0])):
        excess, deviations = [], []
        for times in rounds:
            others = times[:rank] + times[rank + 1 :]
            centre = statistics.median(others)
            excess.append((times[rank] / centre - 1, times[rank] - centre))
            away = sorted(abs(time / centre - 1) for time in others)
            n = len(others)
            deviations += away[1:] if n % 2 else [each * (n / (n - 1)) ** 0.5 for each in away]
        noise = 1.4826 * statistics.median(deviations)
        # Exactly on a limit, rounding decides.
        assume(all(abs(part - limit) > 1e-9 for part, _ in excess for limit in (0.1, 2.5 * noise)))
        if all(part > 0.1 and part > 2.5 * noise and seconds > 0.0002 for part, seconds in excess):
            slow.append(rank)
    return slow if 2 * (len(rounds[0]) - len(slow)) > len(rounds[0]) else []


@settings(max_examples=200)
@given(
    st.integers(3, 8), st.sampled_from([0.01, 0.05, 0.2]), st.floats(1, 2), st.randoms(use_true_random=False)
)
def test_stragglers(size: int, jitter: float, factor: float, chance: random.Random) -> None:
    rounds = [[chance.uniform(1 - jitter, 1 + jitter) for _ in range(size)] for _ in range(3)]
    for times in rounds:
        times[0] *= factor
    rule = Stragglers()
    judged = [rule.observe("recipe", dict(enumerate(times))) for times in rounds][-1]
    assert list(judged.confirmed) == dumb_stragglers(rounds)


def test_rates() -> None:
    """A slice of tests/bench/statistics.py: 1,000 checks cannot tell 0.1 % from 0, but both from 1 %."""
    chance = random.Random(5)
    assert false_alarms(chance, Setting(64, 0.05, False, 0.005), 300) <= 0.01
    assert false_alarms(chance, Setting(3, 0.05, False, 0.005), 1000) <= 0.01
    missed, _, innocent = detection(chance, Setting(3, 0.02, False, 0.005), 1.2, 1000)
    assert missed <= 0.01
    assert innocent == 0
