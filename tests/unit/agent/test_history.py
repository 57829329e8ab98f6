"""The longest silence that ended well, per phase."""

from __future__ import annotations

from scoutd.agent.evidence import Coordinate, Phase
from scoutd.agent.history import FIRST_STEP, suggestion_s
from tests.unit.agent.job import Job, ns


def moves(job: Job, rank: int, phase: Phase = Phase.FORWARD) -> None:
    job.at(rank, phase, "", 0.0)
    job.observe()


def test_a_silence_counts_for_the_phase_it_was_in() -> None:
    job = Job(2)
    moves(job, 0, Phase.CHECKPOINT)
    job.run(3)
    moves(job, 0)
    seen = job.core.history.silences["CHECKPOINT"]
    assert seen.longest_ns == ns(3)
    assert seen.ended == 1


def test_the_longest_stays_and_what_has_not_ended_does_not_count() -> None:
    job = Job(2)
    for lasted in (3, 1):
        moves(job, 0)
        job.run(lasted)
    moves(job, 0)
    job.run(4)
    assert job.core.history.silences["FORWARD"].longest_ns == ns(3)
    assert job.core.history.silences["FORWARD"].ended == 2


def test_who_waits_for_others_is_left_out() -> None:
    job = Job(2)
    job.at(0, Phase.COLLECTIVE, "all_reduce", 0.0, waiting=True)
    job.observe()
    job.run(3)
    moves(job, 0)
    assert "COLLECTIVE" not in job.core.history.silences


def test_the_first_step_counts_apart() -> None:
    job = Job(2)
    job.change(0, coordinates=(Coordinate(0, 5, Phase.FORWARD, "", 0),), silent_ns=0)
    job.observe()
    job.run(3)
    moves(job, 0)
    assert job.core.history.silences[FIRST_STEP].longest_ns == ns(3)


def test_a_dead_rank_did_not_end_well() -> None:
    job = Job(2)
    moves(job, 0)
    job.run(3)
    job.dies(0, ago=0, code=1)
    job.change(0, silent_ns=0)
    job.observe()
    assert "FORWARD" not in job.core.history.silences


def test_the_formula_of_the_suggestion() -> None:
    assert suggestion_s(ns(0.2)) == 5.0
    assert suggestion_s(ns(4.1)) == 13.0
