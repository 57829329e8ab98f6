"""Calls that the ranks do not make alike: orders, cycles of transfers, a collective fewer or more."""

from __future__ import annotations

from scoutd.agent.components import components
from scoutd.agent.evidence import Call, CallKind, CallState, Fingerprint, Phase, Source
from scoutd.agent.verdict import Action, Cause, Status
from tests.unit.agent.job import Job, cleared, confirmed, implicated, ns

LOST = ("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer")


def transfers(job: Job, rank: int, kind: CallKind, peer: int) -> None:
    name = "send" if kind is CallKind.P2P_SEND else "recv"
    call = Call(
        7, 4, kind, CallState.PENDING, Fingerprint(name, "float32", 64, ""), "[64]", ns(5.9), True,
        Source.PUBLIC, peer, 0,
    )  # fmt: skip
    job.change(rank, calls=(call,))
    job.at(rank, Phase.COLLECTIVE, name, 5.9, waiting=True)


def test_the_minority_order_of_two_groups_is_named() -> None:
    job = Job(4)
    job.group(1, "a", [0, 1, 2, 3])
    job.group(2, "b", [0, 1, 2, 3])
    for rank in (0, 1, 2):
        job.waits(rank, sequence=4, group=1)
    job.waits(3, sequence=4, group=2)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, verdict.status) == (Cause.COLLECTIVE_ORDER, Status.ATTRIBUTED)
    assert implicated(verdict) == [3]
    assert cleared(verdict) == {0: [3], 1: [3], 2: [3]}
    assert verdict.action is Action.FIX_PROGRAM


def test_a_tie_of_orders_names_nobody() -> None:
    job = Job(4)
    job.group(1, "a", [0, 1, 2, 3])
    job.group(2, "b", [0, 1, 2, 3])
    for rank in (0, 1):
        job.waits(rank, sequence=4, group=1)
    for rank in (2, 3):
        job.waits(rank, sequence=4, group=2)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, verdict.status) == (Cause.COLLECTIVE_ORDER, Status.INCONCLUSIVE)
    assert implicated(verdict) == []


def test_ranks_of_one_group_only_have_no_say_about_an_order() -> None:
    """0, 1 and 2 wait in the world, 3 waits for 2 in their pair: between 2 and 3 nobody can judge."""
    job = Job(4)
    job.group(1, "pair", [2, 3])
    for rank in (0, 1, 2):
        job.waits(rank)
    job.waits(3, sequence=4, group=1)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_ORDER, [])
    assert cleared(verdict) == {0: [3], 1: [3]}


def test_two_stages_that_both_send_first() -> None:
    job = Job(4)
    transfers(job, 0, CallKind.P2P_RECV, 1)
    transfers(job, 1, CallKind.P2P_SEND, 2)
    transfers(job, 2, CallKind.P2P_SEND, 1)
    transfers(job, 3, CallKind.P2P_RECV, 2)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, verdict.status) == (Cause.COLLECTIVE_ORDER, Status.INCONCLUSIVE)
    assert implicated(verdict) == []
    assert cleared(verdict) == {0: [1], 3: [2]}
    assert "ranks 1 and 2" in verdict.summary or "ranks 1, 2" in verdict.summary


def test_a_stage_that_hangs_is_named_through_the_pipeline() -> None:
    job = Job(4)
    job.hangs(1)
    transfers(job, 0, CallKind.P2P_SEND, 1)
    transfers(job, 2, CallKind.P2P_RECV, 1)
    transfers(job, 3, CallKind.P2P_RECV, 2)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.RANK_STALLED, [1])
    assert cleared(verdict) == {0: [1], 2: [1], 3: [2]}


def test_a_rank_that_left_a_step_early_is_named() -> None:
    job = Job(4)
    job.at(3, Phase.EXITING, "destroy_process_group", 6)
    for rank in (0, 1, 2):
        job.waits(rank)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [3])
    assert cleared(verdict) == {0: [3], 1: [3], 2: [3]}


def test_a_rank_that_made_a_call_more_is_named() -> None:
    """The others went through the end; the one that still waits is in the minority."""
    job = Job(4)
    for rank in (0, 2, 3):
        job.at(rank, Phase.EXITING, "interpreter exit", 5)
        job.dies(rank, ago=4.5, code=0)
    job.waits(1)
    (verdict,) = confirmed(job.run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [1])


def test_a_rank_that_left_early_and_broke_the_others_connections() -> None:
    job = Job(4)
    job.at(3, Phase.EXITING, "interpreter exit", 1.3)
    job.dies(3, ago=1.2, code=0)
    for rank in (0, 1, 2):
        job.waits(rank, state=CallState.FAILED, seconds=1.4)
        job.dies(rank, ago=1.1, code=1, note=LOST)
    (verdict,) = confirmed(job.run(0.5))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [3])


def test_components_of_a_long_chain_need_no_recursion() -> None:
    edges = {("rank", k): [("rank", k + 1)] for k in range(20_000)}
    edges[("rank", 20_000)] = [("rank", 19_999)]
    assert sorted(len(c) for c in components(edges))[-2:] == [1, 2]  # type: ignore[arg-type]


def left(job: Job, rank: int, ago: float) -> None:
    """Through with the program: it has destroyed its groups, of which no view is left."""
    job.at(rank, Phase.EXITING, "interpreter exit", ago + 0.1)
    job.change(rank, groups=())
    job.dies(rank, ago, code=0)


def test_a_rank_that_was_through_before_the_reducer_of_the_others_failed() -> None:
    """DDP's collectives are no public calls: nothing of them is pending where an exception ended them."""
    job = Job(4)
    left(job, 2, 0.5)
    for rank in (0, 1, 3):
        job.dies(rank, 0.1, code=1, note=LOST)
    (verdict,) = confirmed(job.run(2))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2])


def test_a_rank_whose_reducer_failed_after_all_others_were_through() -> None:
    job = Job(4)
    for rank in (0, 1, 3):
        left(job, rank, 0.5)
    job.dies(2, 0.1, code=1, note=LOST)
    (verdict,) = confirmed(job.run(2))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISSING, [2])


def test_half_through_and_half_failed_names_nobody() -> None:
    job = Job(4)
    for rank in (0, 1):
        left(job, rank, 0.5)
    for rank in (2, 3):
        job.dies(rank, 0.1, code=1, note=LOST)
    assert [implicated(v) for v in confirmed(job.run(2))] in ([], [[]])
