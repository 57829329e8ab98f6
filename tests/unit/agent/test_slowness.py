"""Suspicions of slowness: raised by the sketches of three rounds, rarely by jitter, and never for ever."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from scoutd.agent.replay import REQUESTED, RoundKey
from scoutd.agent.sdc import Round
from scoutd.agent.slowness import HOLD_NS, Slowness
from scoutd.agent.tally import Camp, Tally, salt_of, value_of
from scoutd.agent.timesketch import code_of, merged
from tests.unit.agent.replaying import GROUP, RECIPE, result


def at(key: int) -> RoundKey:
    return RoundKey(GROUP, RECIPE, key, 1)


def tally(key: int, times: dict[int, float]) -> Tally:
    """All ranks agree, and took so many milliseconds."""
    round_ = at(key)
    sketch = merged(salt_of(round_), ((rank, code_of(int(ms * 1e6))) for rank, ms in times.items()))
    camp = Camp(value_of(result(key)), ((min(times), len(times)),))
    return Tally(GROUP, RECIPE, key, 1, len(times), (camp,), sketch)


def jittering(ranks: int, jitter: float, slow: dict[int, float], seed: int = 1) -> Iterator[dict[int, float]]:
    dice = random.Random(seed)
    while True:
        yield {r: 5 * max(0.2, dice.gauss(1, jitter)) * slow.get(r, 1.0) for r in range(ranks)}


def told(key: int, times: dict[int, float], missing: int = 0) -> Round:
    results = {rank: result(key, module_ns=int(ms * 1e6)) for rank, ms in times.items()}
    return Round(at(key), len(times) + missing, results, again=True)


def take(slowness: Slowness, key: int, times: dict[int, float]) -> tuple[RoundKey, ...]:
    """The rounds that are asked for because of this one."""
    slowness.take(tally(key, times))
    return slowness.suspect(at(key)) if slowness.slow(at(key)) else ()


SLOW = {0: 5.0, 1: 5.05, 2: 10.0, 3: 4.95}
HEALTHY = {0: 5.0, 1: 5.05, 2: 5.02, 3: 4.95}


def test_the_third_slow_round_asks_for_all_three() -> None:
    slowness = Slowness()
    assert [take(slowness, key, SLOW) for key in (50, 100, 150)] == [(), (), (at(50), at(100), at(150))]
    assert slowness.slow(at(150)) == {2}
    assert slowness.wanted == (at(50), at(100), at(150))


def test_one_quick_round_among_them_asks_for_nothing() -> None:
    slowness = Slowness()
    rounds = [SLOW, SLOW, HEALTHY, SLOW, SLOW]
    assert [take(slowness, key, times) for key, times in enumerate(rounds, 50)] == [()] * 5


def test_order_of_arrival_does_not_matter() -> None:
    slowness = Slowness()
    assert [take(slowness, key, SLOW) for key in (150, 50, 100)][-1] == (at(50), at(100), at(150))
    assert not slowness.take(tally(100, SLOW)), "known"
    assert not slowness.take(tally(20, SLOW)), "older than what is of use"


def test_requests_do_not_mix_with_the_schedule() -> None:
    slowness = Slowness()
    keys = (50, REQUESTED | 7, 100, REQUESTED | 8)
    assert [take(slowness, key, SLOW) for key in keys] == [()] * 4


def test_all_three_rounds_are_due_a_moment_after_the_last_is_told() -> None:
    slowness = Slowness()
    for key in (50, 100, 150):
        take(slowness, key, SLOW)
    for key in (150, 50):
        assert slowness.hand(told(key, SLOW), now_ns=10)
    assert slowness.due(10**12, HOLD_NS) == ()
    assert slowness.hand(told(100, SLOW), now_ns=20)
    assert slowness.due(20 + HOLD_NS - 1, HOLD_NS) == ()
    assert [each.at for each in slowness.due(20 + HOLD_NS, HOLD_NS)] == [at(50), at(100), at(150)]


def test_what_others_tell_is_judged_here_too_and_once() -> None:
    slowness = Slowness()
    assert slowness.join([at(100), at(50)], 0) == (), "two rounds are no suspicion"
    assert slowness.join([at(150), at(50), at(100)], 0) == (at(50), at(100), at(150))
    assert slowness.join([at(150), at(50), at(100)], 0) == ()
    slowness.settle(at(150), confirmed=True)
    assert slowness.join([at(150), at(50), at(100)], 0) == ()
    assert slowness.join([at(200), at(150), at(100)], 0) == (at(100), at(150), at(200))


def test_agents_that_suspect_by_different_rounds_take_the_newest_of_all() -> None:
    slowness = Slowness()
    for key in (50, 100, 150):
        take(slowness, key, SLOW)
    slowness.hand(told(100, SLOW), 0)
    assert slowness.join([at(50), at(100), at(200)], 0) == (at(200),)
    assert slowness.wanted == (at(100), at(150), at(200))
    for key in (150, 200):
        slowness.hand(told(key, SLOW), 0)
    assert len(slowness.due(HOLD_NS, HOLD_NS)) == 3


def test_suspicions_are_judged_in_the_order_of_their_rounds_and_dropped_when_one_names() -> None:
    slowness = Slowness()
    other = [replace(at(key), recipe=1) for key in (50, 100, 150)]
    slowness.join([at(50), at(100), at(150)], 0)
    slowness.join(other, 0)
    for round_ in (told(key, SLOW) for key in (50, 100, 150)):
        slowness.hand(round_, 0)
    assert slowness.due(HOLD_NS, HOLD_NS) == (), "the other recipe comes first, on all agents"
    for key, where in zip((50, 100, 150), other, strict=True):
        slowness.hand(replace(told(key, SLOW), at=where), 0)
    assert [each.at for each in slowness.due(HOLD_NS, HOLD_NS)] == other
    slowness.settle(other[0], confirmed=True)
    assert slowness.wanted == ()


def test_what_comes_to_nothing_rests_twice_as_long_each_time() -> None:
    slowness, asked = Slowness(), []
    for key in range(50, 150):
        if take(slowness, key, SLOW):
            asked.append(key)
            slowness.settle(at(key), confirmed=False)
    assert asked == [52, 55, 61, 73, 97, 145]


def test_results_that_do_not_come_end_it() -> None:
    slowness = Slowness()
    for key in (50, 100, 150):
        take(slowness, key, SLOW)
    assert slowness.hand(told(50, SLOW, missing=1), 0)
    assert slowness.wanted == ()


def test_who_is_not_in_the_sketch_was_no_slower_than_who_is() -> None:
    slowness = Slowness()
    times = dict.fromkeys(range(100), 5.0) | {7: 10.0}
    slowness.take(tally(50, times))
    assert slowness.quick(at(50), range(101)) == set(range(100)) - {7}, "100 did not take part"


def test_two_slow_ranks_of_five_are_seen() -> None:
    slowness, rounds = Slowness(), jittering(5, 0.02, {1: 1.5, 4: 2.0})
    for key in range(50, 53):
        take(slowness, key, next(rounds))
    assert slowness.slow(at(52)) == {1, 4}


def test_jitter_of_512_ranks_asks_for_nothing() -> None:
    """64 nodes with eight ranks, 5 %."""
    slowness, rounds = Slowness(), jittering(512, 0.05, {})
    assert not any(take(slowness, key, next(rounds)) for key in range(300))


def test_a_rank_that_is_a_fifth_slower_is_suspected_in_large_and_small_groups() -> None:
    for ranks in (3, 4, 8, 64, 512):
        missed = 0
        for seed in range(40):
            slowness, rounds = Slowness(), jittering(ranks, 0.02, {1: 1.2}, seed)
            missed += not any(take(slowness, key, next(rounds)) for key in range(50, 53))
        assert missed <= 1, ranks
