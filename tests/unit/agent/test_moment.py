"""The moment of a verdict gives the same verdict again."""

from __future__ import annotations

import pytest

from scoutd.agent.again import judge_again
from scoutd.agent.evidence import Phase
from scoutd.agent.replay import Part, ReplayResult
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import State, Verdict
from tests.unit.agent.job import Job, confirmed, ns
from tests.unit.agent.replaying import Replaying, broken, result


def hang() -> Job:
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank)
    job.hangs(2)
    return job


def death() -> Job:
    job = Job(4)
    job.dies(1, ago=3, signal=9)
    for rank in (0, 2, 3):
        job.waits(rank)
    return job


def mismatch() -> Job:
    job = Job(4)
    for rank in range(4):
        job.waits(rank, numel=64 if rank != 3 else 32)
    return job


def transport() -> Job:
    job = Job(4)
    for rank in range(4):
        job.waits(rank)
    return job


@pytest.mark.parametrize("scenario", [hang, death, mismatch, transport])
def test_the_same_verdict_again(scenario: type) -> None:
    job: Job = scenario()
    found = confirmed(job.run(8))
    assert found
    for verdict in found:
        moment = job.core.moment(verdict.id)
        assert moment is not None
        again = {v.id: v for v in judge_again(moment, ns(5))}[verdict.id]
        assert (again.cause, again.implicated, again.cleared) == (
            verdict.cause,
            verdict.implicated,
            verdict.cleared,
        )
        assert again.summary == verdict.summary
        assert again.state is State.CONFIRMED


def test_an_alarm_that_was_held_back_keeps_its_id() -> None:
    """It was opened under another anchor than it was confirmed under."""
    job = Job(4, Settings(stall_timeout_s=5.0, busy_factor=2.0))
    for rank in (0, 1, 3):
        job.waits(rank)
    job.hangs(2)
    job.busy(2, cpu=0.9)
    held = job.run(1)
    assert {v.state for v in held} == {State.OPEN}
    job.at(2, Phase.FORWARD, "blocks.2 (Block)", 11)
    (verdict,) = confirmed(job.run(1))
    assert verdict.id == held[0].id
    moment = job.core.moment(verdict.id)
    assert moment is not None
    assert verdict.id in {v.id for v in judge_again(moment, ns(5)) if v.state is State.CONFIRMED}


def test_moments_are_bounded_and_others_unknown() -> None:
    job = hang()
    job.run(1)
    assert job.core.moment("no such id") is None


def sick(step: int) -> dict[int, ReplayResult]:
    return {2: broken(result(step), Part.OUTPUT)}


def again(job: Job, verdict: Verdict) -> Verdict:
    moment = job.core.moment(verdict.id)
    assert moment is not None
    return {v.id: v for v in judge_again(moment, ns(5))}[verdict.id]


def same(one: Verdict, other: Verdict) -> bool:
    words = ("id", "cause", "symptom", "state", "summary", "implicated", "cleared", "operation", "peer_group")
    return all(getattr(one, word) == getattr(other, word) for word in words)


def test_wrong_arithmetic_is_found_again() -> None:
    job = Replaying(5)
    job.replays(50, sick(50))
    (verdict,) = job.confirmed()
    found = again(job, verdict)
    assert same(found, verdict)
    assert found.evidence == verdict.evidence
    job.replays(51, sick(51))
    assert same(again(job, verdict), verdict), "decided on the first round"


def test_a_round_that_shows_a_second_rank_names_that_one_again() -> None:
    job = Replaying(5)
    job.replays(50, sick(50))
    job.replays(51, sick(51) | {4: broken(result(51), Part.OUTPUT, by=2)})
    second = next(v for v in job.confirmed() if v.implicated[0].rank == 4)
    assert same(again(job, second), second)


def test_missing_results_are_missing_again() -> None:
    job = Replaying(5)
    job.replays(50, sick(50), missing=(4,))
    job.run(31)
    (verdict,) = job.confirmed()
    assert same(again(job, verdict), verdict)
    assert again(job, verdict).evidence == verdict.evidence


def test_a_tie_is_a_tie_again() -> None:
    job = Replaying(4)
    job.replays(50, {rank: broken(result(50), Part.OUTPUT) for rank in (0, 1)})
    (verdict,) = job.confirmed()
    assert same(again(job, verdict), verdict)


def test_a_straggler_is_slow_again() -> None:
    job = Replaying(4)
    for step in (50, 51, 52, 53):
        times = {rank: 5_000_000 + 10_000 * (rank + step % 3) for rank in job.ranks} | {1: 9_000_000}
        job.replays(step, {rank: result(step, module_ns=time) for rank, time in times.items()})
    (verdict,) = job.confirmed()
    found = again(job, verdict)
    assert same(found, verdict)
    assert found.evidence == verdict.evidence[: len(found.evidence)]
