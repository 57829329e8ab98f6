"""With whom an agent talks: few at a time, everybody in time."""

from __future__ import annotations

import random

from scoutd.agent.partners import Partners

NODES = {f"n{k}": None for k in range(40)}


def partners(count: int = 8) -> Partners:
    return Partners("n0", count, random.Random(3))


def test_a_round_visits_the_same_few_and_then_moves_on_by_one() -> None:
    some = partners()
    first = [some.next(NODES) for _ in range(8)]
    second = [some.next(NODES) for _ in range(8)]
    assert len(set(first)) == 8
    assert second[:7] == first[1:]
    assert second[7] not in first


def test_everybody_is_visited_in_time_but_oneself() -> None:
    some = partners()
    assert {some.next(NODES) for _ in range(8 * 40)} == set(NODES) - {"n0"}


def test_with_few_peers_all_are_partners() -> None:
    some = partners()
    nodes = dict.fromkeys(("n0", "a", "b", "c"))
    assert {some.next(nodes) for _ in range(3)} == {"a", "b", "c"}
    assert sorted(some.sample(8, nodes)) == ["a", "b", "c"]


def test_alone_there_is_nobody() -> None:
    some = partners()
    assert some.next({"n0": None}) == ""
    assert some.sample(2, {"n0": None}) == []


def test_who_is_gone_is_no_partner_any_more() -> None:
    some = partners()
    gone = some.next(NODES)
    left = {node: None for node in NODES if node != gone}
    assert gone not in {some.next(left) for _ in range(400)}


def test_a_sample_is_of_partners_and_of_others_only_where_they_must_be_avoided() -> None:
    some = partners()
    window = {some.next(NODES) for _ in range(8)}
    assert set(some.sample(2, NODES)) <= window
    assert not set(some.sample(2, NODES, avoid=window)) & window


def test_whom_to_avoid_is_asked_where_there_is_nobody_else() -> None:
    some = partners()
    nodes = dict.fromkeys(("n0", "a", "b"))
    assert some.sample(1, nodes, avoid={"a"}) == ["b"]
    assert len(some.sample(1, nodes, avoid={"a", "b"})) == 1


def test_the_first_who_were_known_do_not_stay_everybodys_partners() -> None:
    some = Partners("me", 8, random.Random(3))
    nodes = {"me": None} | {f"early{k}": None for k in range(8)}
    assert {some.next(nodes) for _ in range(8)} == set(nodes) - {"me"}
    nodes |= {f"late{k}": None for k in range(192)}
    for _ in range(8):
        some.next(nodes)
    chosen = {some.next(nodes) for _ in range(8)}
    assert len(chosen & {f"early{k}" for k in range(8)}) <= 2
