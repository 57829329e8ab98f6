"""Stuck devices and stuck transport (design §4 e): everybody came, and who has finished tells them apart."""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.verdict import Cause, Status
from tests.unit.agent.job import WORLD, Job, confirmed, implicated

GROUP = 9


def on_accelerators(job: Job) -> None:
    for rank in job.ranks:
        job.change(rank, device=f"cuda:{rank}")


def finishes(job: Job, rank: int, group: int, retired: int) -> None:
    """This rank's device has finished the group's collectives up to ``retired``."""
    views = tuple(replace(v, retired=retired) if v.group == group else v for v in job.ranks[rank].groups)
    calls = tuple(c for c in job.ranks[rank].calls if c.group != group or c.sequence > retired)
    job.change(rank, groups=views, calls=calls)


def begins(job: Job, rank: int, started: int) -> None:
    views = tuple(replace(v, started=started) if v.group == WORLD else v for v in job.ranks[rank].groups)
    job.change(rank, groups=views)


def everybody_enters(job: Job, *sequences: int) -> None:
    """Asynchronously, as on a device: the host waits in no call, and falls silent."""
    for rank in job.ranks:
        for sequence in sequences:
            job.waits(rank, sequence, waiting=False)
        job.stack(rank, waits=False)


def test_one_device_that_does_not_finish_is_named() -> None:
    job = Job(4)
    on_accelerators(job)
    everybody_enters(job, 7)
    for rank in (0, 1, 3):
        finishes(job, rank, WORLD, 7)
    (verdict,) = confirmed(job.run(1))
    assert verdict.cause is Cause.DEVICE_STALL
    assert implicated(verdict) == [2]


def test_a_run_of_laggards_one_call_behind_may_be_starved() -> None:
    job = Job(6)
    on_accelerators(job)
    everybody_enters(job, 7)
    for rank in (0, 1, 2, 3):
        finishes(job, rank, WORLD, 7)
    (verdict,) = confirmed(job.run(6))
    assert verdict.cause is Cause.GROUP_STALL
    assert implicated(verdict) == []


def test_a_run_of_laggards_that_took_part_in_later_calls_is_not_starved() -> None:
    job = Job(6)
    on_accelerators(job)
    everybody_enters(job, 7, 8)
    for rank in (0, 1, 2, 3):
        finishes(job, rank, WORLD, 8)
    (verdict,) = confirmed(job.run(1))
    assert verdict.cause is Cause.DEVICE_STALL
    assert implicated(verdict) == [4, 5]


def test_a_device_that_has_not_begun_what_others_have() -> None:
    job = Job(4)
    on_accelerators(job)
    everybody_enters(job, 7)
    for rank in (0, 1, 3):
        begins(job, rank, 7)
    begins(job, 2, 6)
    (verdict,) = confirmed(job.run(1))
    assert verdict.cause is Cause.DEVICE_STALL
    assert implicated(verdict) == [2]


def test_nobody_finished_and_nothing_tells_who_began() -> None:
    job = Job(4)
    on_accelerators(job)
    everybody_enters(job, 7)
    (verdict,) = confirmed(job.run(6))
    assert verdict.cause is Cause.GROUP_STALL
    assert verdict.status is Status.AGREE


def test_a_stuck_device_beside_a_host_that_hangs_elsewhere() -> None:
    """Ranks 0–3 have a stuck device among them, ranks 4–6 a host that does not come: both are named."""
    job = Job(7)
    on_accelerators(job)
    job.group(GROUP, "one", [0, 1, 2, 3])
    job.group(GROUP + 1, "other", [4, 5, 6])
    for rank in range(4):
        job.waits(rank, 4, group=GROUP)
        if rank != 1:
            finishes(job, rank, GROUP, 4)
    for rank in (4, 5):
        job.waits(rank, 4, group=GROUP + 1)
    job.hangs(6, seconds=5.9)
    found = {v.cause: implicated(v) for v in confirmed(job.run(1))}
    assert found == {Cause.DEVICE_STALL: [1], Cause.RANK_STALLED: [6]}


def test_on_a_cpu_there_is_no_device_to_blame_beside_a_root() -> None:
    """Asynchronous work of a hung Gloo rank may look unfinished: nobody there looks at it any more."""
    job = Job(4)
    job.group(GROUP, "one", [0, 1, 2, 3])
    for rank in range(4):
        job.waits(rank, 4, group=GROUP, waiting=rank != 2)
        if rank != 2:
            finishes(job, rank, GROUP, 4)
            job.waits(rank, 7)
    job.hangs(2)
    (verdict,) = confirmed(job.run(1))
    assert verdict.cause is Cause.RANK_STALLED
    assert implicated(verdict) == [2]


def test_a_rank_held_up_in_a_complete_call_is_not_late_by_itself() -> None:
    """Pipeline of replicas: rank 1 waits in a call that rank 2 entered too; rank 2's device waits for the
    hung rank 3. Rank 0 waits for rank 1 elsewhere; rank 1 is no culprit."""
    job = Job(4)
    job.group(GROUP, "replicas", [0, 1])
    job.group(GROUP + 1, "stages", [1, 2])
    job.group(GROUP + 2, "tensor", [2, 3])
    job.waits(0, 4, group=GROUP)
    job.waits(1, 4, group=GROUP + 1)
    job.waits(2, 4, group=GROUP + 1)
    job.waits(2, 4, group=GROUP + 2)
    job.hangs(3)
    (verdict,) = confirmed(job.run(1))
    assert implicated(verdict) == [3]


def test_a_call_among_oneself_that_nobody_has_seen_unfinished_blames_no_device() -> None:
    """Its work is kept and not waited for: it may be over long since."""
    job = Job(4)
    on_accelerators(job)
    job.group(GROUP, "alone", [0])
    job.waits(0, 5, group=GROUP, waiting=False)
    unknown = tuple(replace(v, retired=None) if v.group == GROUP else v for v in job.ranks[0].groups)
    job.change(0, groups=unknown)
    for rank in (0, 1, 2):
        job.waits(rank, 7)
    job.hangs(3)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.RANK_STALLED, [3])


def test_a_call_among_oneself_that_the_recorder_has_not_seen_finish_is_the_devices() -> None:
    job = Job(4)
    on_accelerators(job)
    job.group(GROUP, "alone", [0])
    job.waits(0, 5, group=GROUP, waiting=False)
    finishes(job, 0, GROUP, 4)
    for rank in (1, 2, 3):
        job.waits(rank, 7)
    job.stack(0, waits=False)
    verdict = confirmed(job.run(4))[0]
    assert (verdict.cause, implicated(verdict)) == (Cause.DEVICE_STALL, [0])
    assert "others have" not in verdict.summary
