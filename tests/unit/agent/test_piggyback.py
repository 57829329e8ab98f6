"""Whom a probe tells of."""

from __future__ import annotations

import random

from scoutd.agent.piggyback import FRESH_FACTOR, Piggyback

NODES = [f"node-{k}" for k in range(100)]


def test_without_news_a_probe_tells_of_a_few_random_agents_and_never_of_its_sender() -> None:
    one = Piggyback("node-0", 4, random.Random(1))
    told = [one.choose(NODES) for _ in range(100)]
    assert {len(each) for each in told} == {4}
    assert len({node for each in told for node in each}) > 80
    assert not any("node-0" in each for each in told)


def test_news_goes_first_and_is_told_a_logarithmic_number_of_times() -> None:
    one = Piggyback("node-0", 4, random.Random(1))
    one.add(["node-7"], 100)
    times = sum(one.choose(["node-0", "node-7", "node-8"])[0] == "node-7" and one.news for _ in range(50))
    assert times == 2 * 7 - 1
    assert not one.news


def test_many_arrivals_share_a_larger_room() -> None:
    one = Piggyback("node-0", 4, random.Random(1))
    one.add(NODES[1:], 100)
    assert one.choose(NODES) == NODES[1 : 1 + 4 * FRESH_FACTOR]
