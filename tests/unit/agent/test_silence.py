"""A rank that has not come to ``init_process_group``, in which others wait for it."""

from __future__ import annotations

from scoutd.agent.evidence import Coordinate, Phase
from scoutd.agent.silence import NOT_STARTED
from scoutd.agent.verdict import Cause, State
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns


def start() -> Job:
    """Rank 2 of four has not come; the others have waited for six seconds."""
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank, sequence=1, operation="init_process_group")
        job.at(rank, Phase.INIT, "init_process_group", 6, waiting=True)
    job.change(2, coordinates=(Coordinate(0, 0, Phase.INIT, NOT_STARTED, ns(6)),), silent_ns=ns(6), groups=())
    job.stack(2, waits=False)
    return job


def test_idle_it_hangs_like_anywhere_else() -> None:
    job = start()
    job.busy(2)
    (verdict,) = confirmed(job.run(1.0))
    assert (verdict.cause, verdict.phase, implicated(verdict)) == (Cause.RANK_STALLED, Phase.INIT, [2])
    assert cleared(verdict) == {0: [2], 1: [2], 3: [2]}


def test_busy_it_has_the_time_of_its_phase() -> None:
    job = start()
    job.busy(2, cpu=0.9)
    (held,) = job.run(60.0)
    assert (held.state, implicated(held)) == (State.SUPPRESSED, [2])


def test_as_long_as_nothing_is_known_of_its_activity_it_has_that_time_too() -> None:
    assert confirmed(start().run(60.0)) == []
