"""The moment of a verdict gives the same verdict again."""

from __future__ import annotations

import pytest

from scoutd.agent.evidence import Phase
from scoutd.agent.moment import judge_again
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import State
from tests.unit.agent.job import Job, confirmed, ns


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
