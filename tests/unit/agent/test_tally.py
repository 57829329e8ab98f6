"""Tallies: sets of ranks as runs, merged in any order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scoutd.agent.replay import Part
from scoutd.agent.tally import Runs, Tallies, count, union, value_of
from tests.unit.agent.replaying import broken, restless, result

ranks = st.sets(st.integers(0, 40), max_size=20)


def runs_of(found: set[int]) -> Runs:
    runs: Runs = ()
    for rank in found:
        runs = union(runs, ((rank, 1),))
    return runs


@given(ranks, ranks)
def test_union_is_that_of_sets(a: set[int], b: set[int]) -> None:
    merged = union(runs_of(a), runs_of(b))
    assert {first + k for first, size in merged for k in range(size)} == a | b
    assert count(merged) == len(a | b)
    assert all(x[0] + x[1] < y[0] for x, y in pairwise(merged))


def test_value_is_that_of_all_signatures_and_marks_flaws() -> None:
    assert value_of(result(50)) == value_of(replace(result(50), module_ns=7))
    assert value_of(result(50)) != value_of(broken(result(50), Part.PARAMETER_GRADIENT))
    assert value_of(restless(result(50), Part.OUTPUT)) & 1
    assert not value_of(result(50)) & 1


def test_a_large_group_that_agrees_is_one_run() -> None:
    a, b = Tallies(), Tallies()
    for rank in range(0, 1000, 2):
        a.add(rank, result(50), 1000)
    for rank in range(1, 1000, 2):
        b.add(rank, result(50), 1000)
    (tally,) = a.all()
    assert not tally.agreed
    a.merge(b.told())
    (tally,) = a.all()
    assert tally.agreed
    assert tally.camps[0].runs == ((0, 1000),)


def test_news_is_told_a_few_times_and_then_no_more() -> None:
    tallies = Tallies()
    tallies.tellings = 3
    tallies.add(0, result(50), 4)
    assert [len(tallies.told()) for _ in range(5)] == [1, 1, 1, 0, 0]


def test_the_minority_is_who_differs_or_is_flawed() -> None:
    tallies = Tallies()
    for rank in range(5):
        tallies.add(rank, result(50) if rank != 3 else broken(result(50), Part.OUTPUT), 5)
    assert tallies.all()[0].minority() == ((3, 1),)
