"""Who is named: the two recorded incidents, and many made-up ones of the same kind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from scoutd.agent.verdict import Cause, State, Verdict
from scoutd.daemon.analyze import analyze_dumps
from tests.unit.daemon_analyze.megatron import STEPS, Cluster

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "flight_recorder"
LAYOUTS = [
    (2, 2, 4, True),
    (2, 2, 2, True),
    (2, 2, 2, False),
    (1, 4, 2, True),
    (4, 1, 2, False),
    (2, 3, 1, False),
]


def named(verdict: Verdict) -> list[int]:
    return [i.rank for i in verdict.implicated] if verdict.state is State.CONFIRMED else []


def analyze(path: Path) -> Verdict:
    return analyze_dumps(path)[0]


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded incidents are not here")
@pytest.mark.parametrize(
    ("incident", "ranks", "cause"),
    [("gpu_error_1st", [12, 14], Cause.DEVICE_STALL), ("lock_gil_2nd", [10, 15], Cause.RANK_STALLED)],
)
def test_recorded_incidents(incident: str, ranks: list[int], cause: Cause) -> None:
    verdict = analyze(RECORDED / incident)
    assert named(verdict) == ranks
    assert verdict.cause is cause
    assert {c.rank for c in verdict.cleared} == set(range(16)) - set(ranks)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_a_host_that_hangs_is_named(tmp_path: Path, layout: tuple[int, int, int, bool], seed: int) -> None:
    chance = random.Random(f"{layout} {seed}")
    cluster = Cluster(*layout)
    rank = chance.randrange(cluster.size)
    calls = len(cluster.ranks[rank].program) // STEPS
    cluster.hang(rank, chance.randrange(calls))
    verdict = analyze(cluster.run().write(tmp_path, as_json=bool(seed % 2), ring=seed % 3 == 0))
    assert named(verdict) == [rank], verdict.summary
    assert verdict.cause is Cause.RANK_STALLED


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_a_device_that_fails_is_named(tmp_path: Path, layout: tuple[int, int, int, bool], seed: int) -> None:
    chance = random.Random(f"{layout} {seed}")
    cluster = Cluster(*layout)
    rank = chance.randrange(cluster.size)
    calls = len(cluster.ranks[rank].program) // STEPS
    cluster.blind(rank, chance.randrange(calls), step=1)
    verdict = analyze(cluster.run().write(tmp_path, as_json=bool(seed % 2), ring=seed % 3 == 0))
    assert named(verdict) == [rank], verdict.summary


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_a_frozen_device_accuses_nobody_else(
    tmp_path: Path, layout: tuple[int, int, int, bool], seed: int
) -> None:
    chance = random.Random(f"{layout} {seed}")
    cluster = Cluster(*layout)
    rank = chance.randrange(cluster.size)
    cluster.freeze(rank, chance.randrange(len(cluster.ranks[rank].program) // STEPS))
    verdict = analyze(cluster.run().write(tmp_path))
    assert set(named(verdict)) <= {rank}, verdict.summary
    assert verdict.cause is not Cause.COLLECTIVE_ORDER


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_of_two_culprits_one_is_named_at_least_and_nobody_else(
    tmp_path: Path, layout: tuple[int, int, int, bool], seed: int
) -> None:
    """The second may stand where the first would have stopped it anyway; then nothing tells it apart."""
    chance = random.Random(f"two {layout} {seed}")
    cluster = Cluster(*layout)
    first, second = chance.sample(range(cluster.size), 2)
    op = chance.randrange(1, len(cluster.ranks[0].program) // STEPS - 1)
    cluster.hang(first, op, step=1)
    (cluster.hang if seed % 2 else cluster.blind)(second, op, step=1)
    verdict = analyze(cluster.run().write(tmp_path))
    assert named(verdict)
    assert set(named(verdict)) <= {first, second}, verdict.summary


def test_two_that_hang_side_by_side_are_both_named(tmp_path: Path) -> None:
    """Two replicas of one stage, as in the second recorded incident."""
    cluster = Cluster(2, 2, 4)
    cluster.hang(10, 12, step=1)
    cluster.hang(15, 12, step=1)
    assert named(analyze(cluster.run().write(tmp_path))) == [10, 15]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_finished_job_accuses_nobody(tmp_path: Path, layout: tuple[int, int, int, bool]) -> None:
    verdict = analyze(Cluster(*layout).run().write(tmp_path, ring=True))
    assert verdict.state is State.SUPPRESSED
    assert not verdict.implicated


def test_replicas_show_that_a_rank_was_not_stopped_by_the_calls_of_its_own_groups(tmp_path: Path) -> None:
    """Rank 4 hangs behind rank 3: its mates of the expert group went on over the same calls in theirs."""
    cluster = Cluster(1, 4, 2)
    cluster.hang(4, 2, step=1)
    cluster.hang(3, 2, step=1)
    assert named(analyze(cluster.run().write(tmp_path))) == [3, 4]


def test_a_group_of_one_has_nobody_to_wait_for(tmp_path: Path) -> None:
    """The device of rank 7 fails in a collective of its own beside a host that hangs."""
    cluster = Cluster(4, 1, 2, experts=False)
    cluster.hang(4, 12, step=1)
    cluster.blind(7, 12, step=1)
    assert named(analyze(cluster.run().write(tmp_path))) == [4, 7]
