"""Stragglers by replay times: from rounds to a verdict, and back."""

from __future__ import annotations

import random

from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Cause, State, Symptom
from tests.unit.agent.job import implicated
from tests.unit.agent.replaying import Replaying, result


def rounds(job: Replaying, steps: range, slow: dict[int, float], dice: random.Random) -> None:
    for step in steps:
        job.replays(
            step,
            {
                rank: result(step, module_ns=int(5e6 * dice.gauss(1, 0.02) * slow.get(rank, 1.0)))
                for rank in job.ranks
            },
        )


def test_a_rank_that_is_twice_as_slow_is_named_in_the_third_round() -> None:
    job, dice = Replaying(4), random.Random(1)
    rounds(job, range(50, 52), {2: 2.0}, dice)
    assert job.core.verdicts == ()
    rounds(job, range(52, 53), {2: 2.0}, dice)
    (verdict,) = job.confirmed()
    assert (verdict.cause, verdict.symptom) == (Cause.COMPUTE_STRAGGLER, Symptom.STRAGGLER)
    assert implicated(verdict) == [2]
    assert verdict.operation == "BLOCK blocks.1 (Block)"
    assert [c.rank for c in verdict.cleared] == [0, 1, 3]


def test_equal_times_are_no_verdict() -> None:
    job = Replaying(4)
    rounds(job, range(50, 90), {}, random.Random(2))
    assert job.core.verdicts == ()


def test_it_resolves_when_the_rank_is_quick_again() -> None:
    job, dice = Replaying(4), random.Random(3)
    rounds(job, range(50, 54), {2: 1.5}, dice)
    rounds(job, range(54, 61), {}, dice)
    assert [v.state for v in job.core.verdicts] == [State.RESOLVED]


def test_rounds_with_missing_results_say_nothing_of_time() -> None:
    job = Replaying(4, Settings(stall_timeout_s=500.0), peers=5)
    rounds(job, range(50, 56), {2: 2.0}, random.Random(4))
    job.run(31)
    assert job.core.verdicts == ()
