"""Silence: who is named, who is cleared, what is held back."""

from __future__ import annotations

import pytest

from scoutd.agent.events import CaptureStack, SampleActivity
from scoutd.agent.evidence import Phase, ProcessStatus, ProcessView, Source
from scoutd.agent.settings import Settings
from scoutd.agent.snapshot import snapshot
from scoutd.agent.verdict import Action, Cause, Scope, State, Status
from scoutd.agent.waitfor import build
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns, verdicts


def test_a_healthy_job_has_no_verdict() -> None:
    job = Job(4)
    for _ in range(40):
        job.later(0.25)
        for rank in job.ranks:
            job.at(rank, Phase.FORWARD, "blocks.0 (Block)", 0.1)
        assert job.observe() == []


@pytest.mark.parametrize(
    "phase", [Phase.FORWARD, Phase.BACKWARD, Phase.INPUT, Phase.OPTIMIZER, Phase.BETWEEN]
)
def test_a_rank_that_hangs_is_named_and_its_waiters_are_cleared(phase: Phase) -> None:
    job = Job(4)
    job.hangs(2, phase)
    for rank in (0, 1, 3):
        job.waits(rank)
    reports = job.run(1)
    assert [v.state for v in reports] == [State.OPEN, State.CONFIRMED]
    verdict = reports[-1]
    assert (verdict.cause, verdict.status, verdict.scope) == (
        Cause.RANK_STALLED,
        Status.ATTRIBUTED,
        Scope.RANK,
    )
    assert implicated(verdict) == [2]
    assert cleared(verdict) == {0: [2], 1: [2], 3: [2]}
    assert verdict.phase is phase
    assert verdict.operation == "blocks.1 (Block)"
    assert verdict.action is Action.RESTART_IN_PLACE
    assert "train.py:88" in verdict.summary
    assert "ranks 0, 1 and 3 wait for it" in verdict.summary or "ranks 0–1 and 3" in verdict.summary


def test_confirmed_only_after_the_timeout() -> None:
    job = Job(4)
    job.hangs(2, seconds=0.1)
    for rank in (0, 1, 3):
        job.waits(rank, seconds=0.1)
    assert job.run(4.5) == []
    assert confirmed(job.run(1.0))


def test_ddp_waiters_are_seen_only_by_the_recorder() -> None:
    job = Job(4)
    job.hangs(1, Phase.BACKWARD)
    for rank in (0, 2, 3):
        job.waits(rank, waiting=False, source=Source.RECORDER)
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [1]
    assert cleared(verdict) == {0: [1], 2: [1], 3: [1]}


def test_a_prefetched_collective_does_not_excuse_the_rank_that_hangs() -> None:
    """tp {0,1},{2,3} × fsdp {0,2},{1,3}: 0 prefetched fsdp #4, then hangs before its tp all_reduce."""
    job = Job(4)
    for identity, name, ranks in (
        (1, "tp", [0, 1]),
        (2, "tp", [2, 3]),
        (3, "fsdp", [0, 2]),
        (4, "fsdp", [1, 3]),
    ):
        job.group(identity, name, ranks)
    job.hangs(0)
    job.prefetches(0, sequence=5, group=3)
    job.waits(1, sequence=4, group=1)
    job.waits(2, sequence=6, group=3)
    job.waits(3, sequence=4, group=2, seconds=5.5)
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [0]
    assert cleared(verdict)[1] == [0]
    assert cleared(verdict)[2] == [0]
    assert cleared(verdict)[3] == [2]


def test_weak_edges_alone_are_undecided_until_a_stack_tells() -> None:
    """A victim that only the recorder sees in a wait, and for which somebody else waits."""
    job = Job(3)
    job.group(1, "a", [0, 1])
    job.group(2, "b", [1, 2])
    job.hangs(0, seconds=4)
    job.waits(1, sequence=4, group=1, waiting=False, source=Source.RECORDER, seconds=3.9)
    job.waits(2, sequence=4, group=2, seconds=3.8)
    effects = job.observe()
    assert CaptureStack(1, native=True) in effects
    job.stack(1, waits=True, native=True)
    (verdict,) = confirmed(job.run(2))
    assert implicated(verdict) == [0]
    assert cleared(verdict) == {1: [0], 2: [1]}


def test_two_independent_hangs_are_both_named() -> None:
    job = Job(4)
    job.group(1, "a", [0, 1])
    job.group(2, "b", [2, 3])
    job.hangs(0)
    job.hangs(2, Phase.BACKWARD, seconds=5.4)
    job.waits(1, sequence=4, group=1)
    job.waits(3, sequence=4, group=2)
    named = [r for v in confirmed(job.run(1)) for r in implicated(v)]
    assert sorted(named) == [0, 2]


def test_a_held_interpreter_lock_is_found_by_elimination() -> None:
    job = Job(4)
    job.hangs(0)
    job.change(0, heartbeat_age_ns=ns(6))
    for rank in (1, 2, 3):
        job.waits(rank)
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [0]
    assert "interpreter lock" in verdict.summary
    assert any(e.kind == "heartbeat" for e in verdict.evidence)


def test_a_silent_heartbeat_alone_is_no_root() -> None:
    job = Job(4)
    job.change(0, heartbeat_age_ns=ns(60))
    assert job.run(3) == []


def test_a_stopped_process_is_named() -> None:
    job = Job(4)
    job.stops(0, ago=5.5)
    for rank in (1, 2, 3):
        job.waits(rank)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_STOPPED, [0])
    assert cleared(verdict) == {1: [0], 2: [0], 3: [0]}


def test_a_suspended_job_is_no_fault() -> None:
    job = Job(4)
    for rank in job.ranks:
        job.stops(rank, ago=5.5)
    reports = job.run(10)
    assert [v.state for v in reports] == [State.SUPPRESSED]
    assert "suspended" in reports[0].suppressed_because


def test_a_pause_of_all_ranks_is_no_fault() -> None:
    job = Job(4)
    for rank in job.ranks:
        job.at(rank, Phase.BETWEEN, "after optimizer step", 4.5 + rank / 10)
    reports = job.run(10)
    assert [v.state for v in reports] == [State.SUPPRESSED]
    assert "no rank waits" in reports[0].suppressed_because


def test_a_long_start_of_all_ranks_is_not_even_an_alarm() -> None:
    job = Job(4)
    for rank in job.ranks:
        job.at(rank, Phase.INIT, "after init_process_group", 4.5)
    assert job.run(10) == []


def test_a_checkpoint_within_its_limit_is_suppressed_with_its_reason() -> None:
    job = Job(4, Settings(stall_timeout_s=5, phase_limits_s={Phase.CHECKPOINT: 60}))
    job.at(0, Phase.CHECKPOINT, "torch.save", 4.9)
    job.stack(0, waits=False)
    for rank in (1, 2, 3):
        job.waits(rank, operation="barrier", numel=0)
    reports = job.run(7)
    assert [v.state for v in reports] == [State.SUPPRESSED]
    assert reports[0].suppressed_because == "phase CHECKPOINT may take 60 s"
    assert confirmed(job.run(60)), "a checkpoint that never ends is a fault"


def test_a_busy_rank_stays_open_and_ends_suppressed() -> None:
    job = Job(4)
    job.at(0, Phase.BETWEEN, "after all_reduce", 4.9)
    job.busy(0, io=1e6)
    for rank in (1, 2, 3):
        job.waits(rank, operation="barrier", numel=0)
    reports = job.run(3)
    assert [v.state for v in reports] == [State.OPEN]
    assert reports[0].suppressed_because == "busy: reading or writing 1.0 MB/s"
    for rank in job.ranks:
        job.change(rank, calls=())
        job.at(rank, Phase.FORWARD, "blocks.0 (Block)", 0.1)
    (end,) = job.run(0)
    assert end.state is State.SUPPRESSED
    assert end.id == reports[0].id
    assert "busy" in end.suppressed_because


def test_a_busy_loop_is_confirmed_after_the_stretched_limit() -> None:
    job = Job(4)
    job.hangs(0, Phase.FORWARD, seconds=4.9)
    job.busy(0, cpu=1.0)
    for rank in (1, 2, 3):
        job.waits(rank, seconds=4.8)
    assert confirmed(job.run(14)) == []
    (verdict,) = confirmed(job.run(2))
    assert implicated(verdict) == [0]


def test_a_verdict_resolves_when_the_rank_moves_again() -> None:
    job = Job(4)
    job.hangs(2)
    for rank in (0, 1, 3):
        job.waits(rank)
    (verdict,) = confirmed(job.run(2))
    for rank in job.ranks:
        job.change(rank, calls=())
        job.at(rank, Phase.FORWARD, "blocks.0 (Block)", 0.1)
    (end,) = job.run(0)
    assert (end.id, end.state) == (verdict.id, State.RESOLVED)


def test_the_agents_own_pause_is_charged_to_nobody() -> None:
    job = Job(4)
    job.hangs(2, seconds=1)
    for rank in (0, 1, 3):
        job.waits(rank, seconds=0.9)
    job.observe()
    job.later(30)
    assert confirmed(job.run(2)) == []
    assert [implicated(v) for v in confirmed(job.run(4))] == [[2]]


def test_a_mismatch_names_the_minority_with_both_fingerprints() -> None:
    job = Job(4)
    for rank in (0, 1, 2):
        job.waits(rank)
    job.waits(3, operation="broadcast", argument="root=0")
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISMATCH, [3])
    assert "broadcast float32 [64] root=0" in verdict.summary
    assert "all_reduce float32 [64] SUM" in verdict.summary
    assert set(cleared(verdict)) == {0, 1, 2}
    assert all(waits == [3] for waits in cleared(verdict).values())


def test_a_mismatch_of_two_names_nobody() -> None:
    job = Job(2)
    job.waits(0)
    job.waits(1, numel=32)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, verdict.status) == (Cause.COLLECTIVE_MISMATCH, Status.INCONCLUSIVE)
    assert implicated(verdict) == []
    assert len([e for e in verdict.evidence if e.kind == "fingerprint"]) == 2


def test_all_arrived_and_nobody_leaves_is_a_group_stall() -> None:
    job = Job(4)
    for rank in job.ranks:
        job.waits(rank)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, verdict.status, verdict.action) == (
        Cause.GROUP_STALL,
        Status.AGREE,
        Action.DIAGNOSE_NETWORK,
    )
    assert implicated(verdict) == []


def test_an_unobserved_rank_makes_the_verdict_inconclusive() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank)
    job.change(2, observed=False, groups=(), coordinates=(), process=ProcessView(ProcessStatus.RUNNING))
    (verdict,) = confirmed(job.run(1))
    assert verdict.status is Status.INCONCLUSIVE
    assert implicated(verdict) == []
    assert "rank 2" in verdict.summary


def test_a_rank_that_left_with_code_zero_while_others_wait() -> None:
    job = Job(4)
    job.dies(1, ago=6, code=0)
    for rank in (0, 2, 3):
        job.waits(rank)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.PROCESS_DEAD, [1])


def test_a_job_of_one_rank_needs_long_silence() -> None:
    job = Job(1)
    job.hangs(0, seconds=4.9)
    reports = job.run(5)
    assert [v.state for v in reports] == [State.SUPPRESSED]
    assert implicated(confirmed(job.run(12))[0]) == [0]


def test_a_long_wait_for_a_rank_that_progresses_is_suppressed() -> None:
    job = Job(4)
    for rank in (1, 2, 3):
        job.waits(rank, operation="barrier", numel=0)
    job.at(0, Phase.EVAL, "blocks.0 (Block)", 0.1)
    reports = [v for _ in range(20) for v in _tick_while_rank_0_moves(job)]
    assert [v.state for v in reports] == [State.SUPPRESSED]
    assert "makes progress" in reports[0].suppressed_because


def test_many_that_progress_are_suppressed_in_one_line() -> None:
    """Half of a large job may wait for the other half: there is no verdict about each of them."""
    job = Job(8)
    for rank in range(4):
        job.waits(rank)
    (verdict,) = verdicts(job.observe())
    assert (verdict.state, implicated(verdict)) == (State.SUPPRESSED, [4, 5, 6, 7])
    assert verdict.suppressed_because == "ranks 4–7 make progress"
    assert cleared(verdict) == {rank: [4, 5, 6, 7] for rank in range(4)}


def _tick_while_rank_0_moves(job: Job) -> list:  # type: ignore[type-arg]
    job.later(0.25)
    job.at(0, Phase.EVAL, "blocks.0 (Block)", 0.1)
    return job.run(0)


def test_activity_is_sampled_only_for_silent_ranks() -> None:
    job = Job(4)
    job.hangs(2, seconds=2)
    assert SampleActivity((2,)) in job.observe()
    job.at(2, Phase.FORWARD, "blocks.0 (Block)", 0.1)
    assert SampleActivity(()) in job.observe()


def test_roots_that_fall_silent_together_are_one_verdict_and_wait_for_each_other() -> None:
    """Whether an agent looks before or after the second rank's limit must not change what it says."""
    job = Job(4)
    job.hangs(1, seconds=5.1)
    job.hangs(2, seconds=4.7)
    job.waits(0)
    job.waits(3)
    assert confirmed(job.run(0.2)) == []
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [1, 2]


def test_a_root_that_falls_silent_later_is_a_verdict_of_its_own() -> None:
    job = Job(4)
    job.hangs(1, seconds=5.1)
    job.hangs(2, seconds=3.0)
    job.waits(0)
    job.waits(3)
    first, second = confirmed(job.run(3))
    assert (implicated(first), implicated(second)) == ([1], [2])
    assert 2 not in cleared(first)


def test_a_mismatch_does_not_hide_a_rank_that_hangs_elsewhere() -> None:
    job = Job(5)
    job.group(9, "tp", [0, 4], enqueued=3)
    for rank in (0, 1, 3):
        job.waits(rank)
    job.waits(2, numel=48)
    job.waits(0, 4, group=9)
    job.hangs(4)
    job.enqueues(4, 7)
    named = sorted(implicated(v) for v in confirmed(job.run(1)))
    assert named == [[2], [4]]


def test_half_of_a_job_that_waits_for_the_other_half_costs_no_square() -> None:
    """2,000 ranks wait in the world group for 2,000, who wait in a group of theirs for one that hangs."""
    half, size = 2000, 4000
    job = Job(size)
    job.group(9, "second half", list(range(half, size)))
    for rank in range(half):
        job.waits(rank)
    for rank in range(half, size - 1):
        job.waits(rank, 4, group=9)
    job.hangs(size - 1)
    graph = build(snapshot([(job.report(), 0)], ns(5)))
    assert len({id(targets) for targets in graph.waits_for.values()}) == 2
    (verdict,) = confirmed(job.run(0))
    assert implicated(verdict) == [size - 1]
    waits = cleared(verdict)
    assert size - 1 in waits[0]
    assert waits[half] == [size - 1]
    assert max(len(targets) for targets in waits.values()) == 32


def test_who_cannot_be_judged_without_a_stack_is_open_while_it_is_read() -> None:
    """Reading a stack takes its time on a busy machine; then it decides."""
    job = Job(3)
    for rank in (0, 1):
        job.waits(rank)
    job.group(1, "pair", [1, 2])
    job.prefetches(2, sequence=4, group=1)
    job.at(2, Phase.BETWEEN, "after all_gather", 5.9)
    first = job.run(1)
    assert {v.state for v in first} == {State.OPEN}
    assert "stack of rank 2" in first[0].suppressed_because
    job.stack(2, waits=False)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.RANK_STALLED, [2])


def test_a_stack_that_never_comes_is_not_waited_for_for_ever() -> None:
    job = Job(3)
    for rank in (0, 1):
        job.waits(rank)
    job.group(1, "pair", [1, 2])
    job.prefetches(2, sequence=4, group=1)
    job.at(2, Phase.BETWEEN, "after all_gather", 5.9)
    (verdict,) = confirmed(job.run(6))
    assert (verdict.cause, implicated(verdict)) == (Cause.GROUP_STALL, [])
