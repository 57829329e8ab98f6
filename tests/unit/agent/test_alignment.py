"""Streams that are one place off, against streams with a wrong call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoutd.agent.alignment import RECORDED, shift
from scoutd.agent.evidence import Fingerprints, Source
from scoutd.agent.verdict import Cause, Status
from tests.unit.agent.job import WORLD, Job, confirmed, implicated


def stream(calls: str, first: int = 1) -> dict[int, int]:
    return {first + k: ord(call) for k, call in enumerate(calls) if call != "?"}


@pytest.mark.parametrize(
    ("own", "reference", "by"),
    [
        ("abce", "abdce", 1),
        ("abcefg", "abcdefg", 1),
        ("abfghi", "abcdefgh", 3),
        ("abcxdef", "abcdefg", -1),
        ("abcxydef", "abcdefgh", -2),
        ("bcdefg", "abcdefg", 1),
        ("ababbaba", "abababab", 0),  # with a period of two, one fewer and one more look alike
    ],
)
def test_a_shift_is_found(own: str, reference: str, by: int | None) -> None:
    found = shift(stream(own), stream(reference))
    assert (found.by or 0 if found else None) == by


@pytest.mark.parametrize(
    ("own", "reference"),
    [
        ("abcdefg", "abcdefg"),
        ("gggm", "gggg"),  # another call, or one fewer before: no proof
        ("abxdef", "abcdef"),
        ("abxdyf", "abcdef"),
        ("abdcef", "abcdef"),  # two neighbours in the other order
        ("gggg", ""),
    ],
)
def test_what_is_no_shift(own: str, reference: str) -> None:
    assert shift(stream(own), stream(reference)) is None


def test_hashes_of_two_sources_are_not_compared() -> None:
    recorded = {k: v | RECORDED for k, v in stream("abcefgh").items()}
    assert shift(stream("abcdefg"), recorded) is None
    assert shift(recorded, {k: v | RECORDED for k, v in stream("abcdefgh").items()}) is not None


@given(st.lists(st.integers(1, 9), min_size=16, max_size=16, unique=False), st.integers(0, 10))
def test_one_call_left_out_is_never_taken_for_one_made_more(calls: list[int], at: int) -> None:
    """Unless the rest is periodic, and then the direction is open."""
    reference = dict(enumerate(calls, 1))
    own = dict(enumerate(calls[:at] + calls[at + 1 :], 1))
    found = shift(own, reference)
    assert found is None or found.by is None or found.by > 0


def called(job: Job, rank: int, calls: str) -> None:
    """The group's newest calls, the one that the rank waits in included."""
    views = job.ranks[rank].groups
    last = next(v.enqueued for v in views if v.group == WORLD)
    told = Fingerprints(last, tuple(map(ord, calls)))
    job.change(rank, groups=tuple(replace(v, history=told) if v.group == WORLD else v for v in views))


def test_a_mismatch_after_shifted_calls_is_a_missing_collective() -> None:
    """Calls of one size and different reduce operations: Gloo added up what it was given."""
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank, argument="MAX")
        called(job, rank, "smsmnsm")
    job.waits(2, numel=1)
    called(job, 2, "smsnsm1")
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, verdict.status) == (Cause.COLLECTIVE_MISSING, Status.ATTRIBUTED)
    assert implicated(verdict) == [2]
    assert "rank 2 left out a collective" in verdict.summary
    assert "#4" in next(e.text for e in verdict.evidence if e.kind == "alignment")


def test_one_wrong_call_stays_a_mismatch() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank)
        called(job, rank, "ggggggg")
    job.waits(2, numel=1)
    called(job, 2, "ggggggm")
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISMATCH, [2])


@pytest.mark.parametrize(("step", "word"), [(4, "left out"), (2, "more")])
def test_who_is_at_a_place_in_another_step_is_off(step: int, word: str) -> None:
    job = Job(3)
    for rank in (0, 1):
        job.waits(rank)
    job.waits(2, operation="barrier", numel=0)
    job.change(2, coordinates=(replace(job.ranks[2].coordinates[0], step=step),))
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2])
    assert word in verdict.summary


def test_a_tie_of_fingerprints_names_nobody_whatever_the_histories_say() -> None:
    job = Job(4)
    for rank in (0, 1):
        job.waits(rank, argument="MAX")
        called(job, rank, "smsmnsm")
    for rank in (2, 3):
        job.waits(rank, numel=1)
        called(job, rank, "smsnsm1")
    (verdict,) = confirmed(job.run(1))
    assert (verdict.status, implicated(verdict)) == (Status.INCONCLUSIVE, [])


def test_in_a_circle_the_rank_of_a_later_step_has_passed_a_collective_by() -> None:
    """0, 1 and 2 reduce in the world; 3 has left that out and waits for 2 in their pair, a step later."""
    job = Job(4)
    job.group(1, "pair", [2, 3])
    for rank in (0, 1, 2):
        job.waits(rank)
    job.waits(3, sequence=4, group=1)
    job.change(3, coordinates=(replace(job.ranks[3].coordinates[0], step=4),))
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [3])
    assert "went on to a later step without" in verdict.summary


def test_in_a_circle_one_call_that_all_others_have_passed_by() -> None:
    """3 reduces in the world once more; the others wait for it in the next step, in another group."""
    job = Job(4)
    job.group(1, "all", [0, 1, 2, 3])
    for rank in (0, 1, 2):
        job.waits(rank, sequence=4, group=1)
        job.change(rank, coordinates=(replace(job.ranks[rank].coordinates[0], step=4),))
    job.waits(3)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [3])
    assert "passed by" in verdict.summary


@pytest.mark.parametrize(("numel", "named"), [(1, [2]), (64, [])])
def test_a_public_call_and_recorded_ones_are_compared_where_they_count_alike(
    numel: int, named: list[int]
) -> None:
    """An all_reduce of another size, while the others are in DDP's reducer."""
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank, source=Source.RECORDER)
        job.stack(rank, waits=True)
    job.waits(2, numel=numel)
    found = [v for v in confirmed(job.run(1)) if v.cause is Cause.COLLECTIVE_MISMATCH]
    assert [implicated(v) for v in found] == [named] * bool(named)
