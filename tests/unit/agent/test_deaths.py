"""Deaths: the first failure is named, what follows is cleared."""

from __future__ import annotations

import pytest

from scoutd.agent.evidence import CallState, Phase, ProcessStatus, ProcessView
from scoutd.agent.verdict import Action, Cause, Scope, State, Status
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns

LOST = ("RuntimeError", "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")


@pytest.mark.parametrize("victim", [0, 1])
def test_sigkill_names_the_killed_rank_alone(victim: int) -> None:
    job = Job(4)
    job.dies(victim, ago=0.9, signal=9)
    for rank in set(job.ranks) - {victim}:
        job.waits(rank, state=CallState.FAILED, seconds=0.9)
        job.dies(rank, ago=0.8, code=1, note=LOST)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [victim])
    assert cleared(verdict) == {r: [victim] for r in set(job.ranks) - {victim}}
    assert "SIGKILL" in verdict.summary
    assert verdict.action is Action.RESTART_IN_PLACE


def test_deaths_are_settled_before_they_are_judged() -> None:
    job = Job(4)
    job.dies(1, ago=0.0, signal=9)
    assert job.run(0.75) == []
    assert confirmed(job.run(0.5))


def test_an_exception_is_named_with_type_message_and_line() -> None:
    job = Job(4)
    job.dies(2, ago=1.2, code=1, note=("ValueError", "bad sample 17"))
    for rank in (0, 1, 3):
        job.waits(rank, state=CallState.FAILED, seconds=2)
        job.dies(rank, ago=1.1, signal=15)
    (verdict,) = confirmed(job.run(0.5))
    assert implicated(verdict) == [2]
    assert "ValueError: bad sample 17 (train.py:12 in step)" in verdict.summary
    assert verdict.death_notes[0].rank == 2
    assert verdict.action is Action.FIX_PROGRAM


def test_the_abort_of_an_innocent_rank_is_judged_by_fingerprints() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank, state=CallState.FAILED)
        job.dies(rank, ago=1.0, code=1, note=LOST)
    job.waits(2, numel=128, state=CallState.FAILED)
    job.dies(2, ago=1.0, code=1, note=LOST)
    job.change(0, notes=())
    job.dies(0, ago=1.5, signal=6)
    (verdict,) = confirmed(job.run(0.5))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISMATCH, [2])


def test_sigabrt_outside_of_a_collective_is_a_death() -> None:
    job = Job(4)
    job.dies(1, ago=1.5, signal=6)
    (verdict,) = confirmed(job.run(0))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [1])


def test_a_timeout_of_the_collective_names_the_rank_that_never_came() -> None:
    """The library's own time-out fires before ours: victims die first, the culprit is terminated."""
    job = Job(4)
    job.hangs(3, Phase.FORWARD, seconds=4)
    for rank in (0, 1, 2):
        job.waits(rank, state=CallState.FAILED, seconds=3.9)
        job.dies(rank, ago=1.0, code=1, note=("RuntimeError", "Timed out waiting 3000ms for recv operation"))
    job.dies(3, ago=0.9, signal=15)
    (verdict,) = confirmed(job.run(0.5))
    assert (verdict.cause, implicated(verdict)) == (Cause.RANK_STALLED, [3])


def test_a_lost_connection_blames_nobody() -> None:
    """A rank that had merely not arrived when a link broke is healthy."""
    job = Job(4)
    for rank in (0, 1, 2):
        job.waits(rank, state=CallState.FAILED, seconds=1.2)
        job.dies(rank, ago=1.0, code=1, note=LOST)
    job.at(3, Phase.FORWARD, "blocks.0 (Block)", 1.05)
    job.dies(3, ago=0.9, signal=15)
    (verdict,) = confirmed(job.run(0.5))
    assert verdict.status is Status.INCONCLUSIVE
    assert implicated(verdict) == []
    assert verdict.action is Action.DIAGNOSE_NETWORK


def test_a_cancelled_job_is_no_fault() -> None:
    job = Job(4)
    for rank in job.ranks:
        job.dies(rank, ago=1.0 + rank / 1000, signal=15)
    reports = job.run(1)
    assert [v.state for v in reports] == [State.SUPPRESSED]
    assert "cancelled" in reports[0].suppressed_because


def test_ctrl_c_is_no_fault() -> None:
    job = Job(2)
    for rank in job.ranks:
        job.dies(rank, ago=1.0, code=1, note=("KeyboardInterrupt", ""))
    assert confirmed(job.run(1) + job.conclude()) == []


def test_one_rank_told_to_end_is_the_first_failure() -> None:
    job = Job(4)
    job.waits(1, seconds=1.3)
    job.dies(1, ago=1.2, signal=15)
    for rank in (0, 2, 3):
        job.waits(rank, state=CallState.FAILED, seconds=1.3)
        job.dies(rank, ago=1.1, code=1, note=LOST)
    (verdict,) = confirmed(job.run(0.5))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [1])


def test_the_launchers_sigkills_do_not_blame_survivors() -> None:
    job = Job(4)
    job.dies(2, ago=1.5, signal=9)
    for rank in (0, 1, 3):
        job.dies(rank, ago=1.5 - 0.2 - rank / 100, signal=9)
    (verdict,) = confirmed(job.run(0))
    assert implicated(verdict) == [2]


def test_one_bug_on_every_rank_is_the_jobs() -> None:
    job = Job(3)
    for rank in job.ranks:
        job.dies(rank, ago=1.5 - rank / 10, code=1, note=("NameError", "name 'x' is not defined"))
    (verdict,) = confirmed(job.run(0))
    assert verdict.scope is Scope.JOB
    assert implicated(verdict) == [0, 1, 2]


def test_conclude_judges_at_once() -> None:
    job = Job(4)
    job.dies(1, ago=0.1, signal=9)
    assert job.run(0) == []
    assert implicated(confirmed(job.conclude())[0]) == [1]


def test_deaths_after_a_confirmed_hang_are_consequences() -> None:
    job = Job(4)
    job.hangs(2)
    for rank in (0, 1, 3):
        job.waits(rank)
    assert len(confirmed(job.run(1))) == 1
    for rank in job.ranks:
        job.dies(rank, ago=0.1, signal=9)
    assert job.run(3) + job.conclude() == []


def test_a_restart_resolves_and_begins_anew() -> None:
    job = Job(4)
    job.dies(1, ago=1.5, signal=9)
    (verdict,) = confirmed(job.run(0))
    job.generation = 2
    job.ranks = {r: job._healthy(r) for r in range(4)}
    (end,) = job.run(0)
    assert (end.id, end.state) == (verdict.id, State.RESOLVED)
    job.hangs(0)
    for rank in (1, 2, 3):
        job.waits(rank)
    (second,) = confirmed(job.run(1))
    assert (second.generation, implicated(second)) == (2, [0])


def test_a_healthy_end_has_no_verdict() -> None:
    job = Job(4)
    for rank in job.ranks:
        job.dies(rank, ago=rank / 2, code=0)
    assert job.run(5) + job.conclude() == []


def test_a_death_that_nobody_saw_is_dated_by_the_last_sign_of_life() -> None:
    """The rank was gone before the agent looked first: no status, no time; the others followed it."""
    job = Job(4)
    job.change(1, process=ProcessView(ProcessStatus.GONE), heartbeat_age_ns=ns(1.4), silent_ns=ns(1.6))
    for rank in (0, 2, 3):
        job.dies(rank, ago=1.1, signal=9)
    (verdict,) = confirmed(job.run(0.5))
    assert implicated(verdict) == [1]


def test_an_unseen_end_inside_a_collective_is_judged_by_fingerprints() -> None:
    """Everybody was gone before the agent looked first: no exit status, but the calls are there."""
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank, state=CallState.FAILED)
        job.dies(rank, ago=1.0, code=1, note=LOST)
    job.waits(2, numel=32)
    job.change(2, process=ProcessView(ProcessStatus.GONE), heartbeat_age_ns=ns(1.4), silent_ns=ns(1.3))
    (verdict,) = confirmed(job.run(0.5))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISMATCH, [2])


def test_an_unseen_end_inside_a_collective_without_disagreement_is_a_death() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank, state=CallState.FAILED)
        job.dies(rank, ago=1.0, code=1, note=LOST)
    job.waits(2)
    job.change(2, process=ProcessView(ProcessStatus.GONE), heartbeat_age_ns=ns(1.4), silent_ns=ns(1.3))
    (verdict,) = confirmed(job.run(0.5))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [2])


def test_failures_that_the_program_swallowed_name_nobody() -> None:
    """Every rank caught the lost connection and exited with 1: whoever was first is no culprit."""
    job = Job(4)
    for rank in job.ranks:
        job.waits(rank, state=CallState.FAILED)
        job.dies(rank, ago=1.5 - rank / 10, code=1)
    (verdict,) = confirmed(job.run(0.5))
    assert implicated(verdict) == []


def broken_off(job: Job, rank: int, ago: float, code: int | None = 1) -> None:
    """Its connection is lost in mid-collective, and it ends."""
    job.waits(rank, state=CallState.FAILED, seconds=ago + 5)
    job.dies(rank, ago=ago, code=code, note=LOST)


def test_who_is_killed_long_after_another_had_failed_was_swept_up_by_its_launcher() -> None:
    """mpirun and srun wait, and then kill whoever is left: that rank is no culprit."""
    job = Job(4)
    for rank in (0, 1, 3):
        broken_off(job, rank, ago=20.0)
    job.waits(2, state=CallState.FAILED, seconds=25.0)
    job.dies(2, ago=1.0, signal=9)
    reports = job.run(4)
    assert all(2 not in implicated(v) for v in reports), [v.summary for v in reports]


def test_who_showed_life_after_another_had_failed_did_not_cause_it() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        broken_off(job, rank, ago=2.0)
    job.waits(2, state=CallState.FAILED, seconds=7.0)
    job.dies(2, ago=1.0, signal=9)
    job.change(2, heartbeat_age_ns=ns(1.1))
    reports = job.run(4)
    assert all(2 not in implicated(v) for v in reports), [v.summary for v in reports]


def test_a_late_look_at_the_exit_does_not_acquit_the_killed_rank() -> None:
    """The agent noticed the exit a second after the others had broken off: it is still the first."""
    job = Job(4)
    for rank in (0, 1, 3):
        broken_off(job, rank, ago=2.0)
    job.dies(2, ago=1.0, signal=9)
    job.change(2, heartbeat_age_ns=ns(2.3), silent_ns=ns(2.4))
    (verdict,) = confirmed(job.run(4))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [2])


def test_how_ranks_end_after_a_verdict_adds_nothing_to_it() -> None:
    """A stopped rank was named; then the job is ended, and one rank's last word is a lost connection."""
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank)
    job.stops(2, ago=6.0)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_STOPPED, [2])
    broken_off(job, 1, ago=0.0)
    for rank in (0, 3):
        job.dies(rank, ago=0.0, signal=15)
    assert confirmed(job.run(5)) == []
    assert [v.id for v in job.core.verdicts] == [verdict.id]


def test_the_words_for_ranks_that_died_at_once_do_not_depend_on_which_was_first() -> None:
    """Agents on other nodes see milliseconds differently."""
    said = []
    for ago in ((1.50, 1.51), (1.51, 1.50)):
        job = Job(4)
        job.dies(1, ago=ago[0], signal=9)
        job.dies(2, ago=ago[1], code=3)
        job.at(1, Phase.FORWARD, "blocks.1", 2.0)
        job.at(2, Phase.BACKWARD, "blocks.0", 2.0)
        for rank in (0, 3):
            job.waits(rank, state=CallState.FAILED, seconds=2)
            job.dies(rank, ago=1.4, code=1, note=LOST)
        (verdict,) = confirmed(job.run(0))
        said.append((verdict.id, verdict.summary, verdict.phase, verdict.operation, verdict.action))
    assert said[0] == said[1]
    assert said[0][1].startswith(
        "rank 1 on node-1 was killed by SIGKILL in FORWARD, rank 2 on node-1 exited with code 3 in BACKWARD; "
    )


def test_ranks_that_died_alike_are_told_of_in_one_clause() -> None:
    job = Job(4)
    for rank in (1, 2):
        job.dies(rank, ago=1.5, signal=9)
        job.at(rank, Phase.FORWARD, "blocks.1", 2.0)
    for rank in (0, 3):
        job.waits(rank, state=CallState.FAILED, seconds=2)
        job.dies(rank, ago=1.4, code=1, note=LOST)
    (verdict,) = confirmed(job.run(0))
    assert verdict.summary.startswith("ranks 1 and 2 on node-1 were killed by SIGKILL in FORWARD; the end of")


def test_one_bug_with_a_message_per_rank_stays_a_short_summary() -> None:
    job = Job(40)
    for rank in job.ranks:
        job.dies(rank, ago=1.5, code=1, note=("ValueError", f"loss of rank {rank} is not finite"))
    (verdict,) = confirmed(job.run(0))
    assert verdict.summary.endswith(", and ranks 4–39 on node-1 at the same time")
