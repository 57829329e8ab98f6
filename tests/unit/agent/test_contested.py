"""Calls that differed while nothing hung: what counts as different, and who is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scoutd.agent import contested
from scoutd.agent.contested import essence
from scoutd.agent.events import Observed
from scoutd.agent.evidence import (
    Call,
    CallKind,
    CallState,
    Contested,
    Fingerprint,
    Fingerprints,
    Members,
    Source,
)
from scoutd.agent.verdict import Cause, State, Status, Symptom, Verdict
from tests.unit.agent.job import Job, confirmed, implicated, ns, verdicts

SUM = Fingerprint("all_reduce", "float32", 64, "SUM")
MAX = replace(SUM, argument="MAX")
GROUP = 7


def call(fingerprint: Fingerprint) -> Call:
    return Call(
        GROUP, 5, CallKind.COLLECTIVE, CallState.DONE, fingerprint, "[64]", ns(2), False, Source.PUBLIC
    )


def place(said: dict[int, Fingerprint], world: int = 4, **more: object) -> Contested:
    calls = tuple((rank, call(fingerprint)) for rank, fingerprint in said.items())
    return Contested(GROUP, 5, "default_pg", Members(((0, 1, world),)), calls, **more)  # type: ignore[arg-type]


def judged(found: Contested, job: Job | None = None) -> list[Verdict]:
    job = job or Job(4)
    report = replace(job.report(), contested=(found,))
    return verdicts(job.core.step(Observed(report), job.now))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SUM, MAX),
        (SUM, replace(SUM, dtype="int32")),
        (SUM, replace(SUM, numel=32)),
        (Fingerprint("broadcast", "float32", 8, "root=0"), Fingerprint("broadcast", "float32", 8, "root=1")),
        (SUM, Fingerprint("reduce_scatter_tensor", "float32", 64, "SUM")),
        (Fingerprint("gather", "float32", 8, "root=0"), Fingerprint("gather", "float64", 8, "root=0")),
    ],
)
def test_what_makes_results_wrong_differs(one: Fingerprint, other: Fingerprint) -> None:
    assert essence(one) != essence(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Fingerprint("broadcast", "float32", 8, "root=0"), Fingerprint("broadcast", "int64", 4, "root=0")),
        (Fingerprint("scatter", "bfloat16", 8, "root=0"), Fingerprint("scatter", "bool", 16, "root=0")),
        (
            Fingerprint("all_gather", "float32", 8, ""),
            Fingerprint("all_gather_into_tensor", "float32", 9, ""),
        ),
        (Fingerprint("all_to_all_single", "float32", None, ""),) * 2,
        (
            Fingerprint("reduce_scatter", "float32", None, "SUM"),
            Fingerprint("reduce_scatter_tensor", "float32", 64, "SUM"),
        ),
    ],
)
def test_what_may_legally_differ_does_not(one: Fingerprint, other: Fingerprint) -> None:
    assert essence(one) == essence(other)


def test_the_minority_is_named_and_the_others_are_cleared() -> None:
    opened, made = judged(place({0: SUM, 1: SUM, 2: MAX, 3: SUM}))
    assert (opened.state, made.state) == (State.OPEN, State.CONFIRMED)
    assert (made.cause, made.symptom) == (Cause.COLLECTIVE_MISMATCH, Symptom.SDC)
    assert implicated(made) == [2]
    assert [c.rank for c in made.cleared] == [0, 1, 3]
    assert made.detection_latency_ns == ns(2)


@pytest.mark.parametrize(
    ("said", "world"),
    [({0: SUM, 1: MAX}, 2), ({0: SUM, 1: MAX, 2: SUM, 3: MAX}, 4), ({0: SUM, 1: SUM, 2: MAX}, 8)],
)
def test_without_a_majority_of_all_members_nobody_is_named(said: dict[int, Fingerprint], world: int) -> None:
    (made,) = confirmed(judged(place(said, world)))
    assert made.status is Status.INCONCLUSIVE
    assert implicated(made) == []


def test_where_nobody_knows_the_members_nobody_is_named() -> None:
    found = replace(place({0: SUM, 1: SUM, 2: MAX}), members=None)
    (verdict,) = confirmed(judged(found))
    assert (verdict.status, implicated(verdict)) == (Status.INCONCLUSIVE, [])


def test_a_stream_that_is_shifted_has_left_one_out() -> None:
    stream = [11, 12, 13, 14, 15, 16, 17, 18]
    others = tuple((rank, Fingerprints(8, tuple(stream))) for rank in (0, 1, 3))
    shifted = (2, Fingerprints(7, (*stream[:2], *stream[3:])))
    (made,) = confirmed(judged(place({0: SUM, 1: SUM, 2: MAX, 3: SUM}, histories=(*others, shifted))))
    assert made.cause is Cause.COLLECTIVE_MISSING
    assert "left out a collective" in made.summary


def test_a_group_is_judged_once() -> None:
    job = Job(4)
    assert len(confirmed(judged(place({0: SUM, 1: SUM, 2: MAX, 3: SUM}), job))) == 1
    assert judged(place({0: SUM, 1: SUM, 2: SUM, 3: MAX}), job) == []


def test_a_later_hang_of_the_same_rank_is_a_verdict_of_its_own() -> None:
    job = Job(4)
    judged(place({0: SUM, 1: SUM, 2: MAX, 3: SUM}), job)
    job.hangs(2)
    for rank in (0, 1, 3):
        job.waits(rank)
    (hang,) = confirmed(job.run(1.0))
    assert (hang.cause, implicated(hang)) == (Cause.RANK_STALLED, [2])


def test_streams_that_agree_where_they_overlap_have_no_difference() -> None:
    assert contested.first_difference({0: {1: "a", 2: "b"}, 1: {2: "b", 3: "c"}, 2: {}}) is None
    assert contested.first_difference({0: {1: "a", 2: "b"}, 1: {2: "x", 3: "c"}, 2: {3: "d"}}) == 2
