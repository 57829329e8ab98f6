"""Replay rounds of a job on two nodes: tallies while all agree, results when they do not."""

from __future__ import annotations

import random

from scoutd.agent.again import judge_again
from scoutd.agent.replay import Part, ReplayResult
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Cause, State
from tests.unit.agent.job import implicated
from tests.unit.agent.replaying import Replaying, broken, restless, result, view
from tests.unit.agent.test_party import Pair


def replayed(pair: Pair, step: int, sick: dict[int, ReplayResult] | None = None) -> None:
    """All ranks have told this round, and a few seconds have passed."""
    for rank in pair.job.ranks:
        told = ((sick or {}).get(rank, result(step)),)
        pair.job.change(rank, recipes=(view(peers=len(pair.job.ranks)),), replays=told)
    pair.run(4.0)


def pair_of_four() -> Pair:
    return Pair(Replaying(4, Settings(stall_timeout_s=500.0)))


def test_agreement_is_known_everywhere_and_no_report_travels() -> None:
    pair = pair_of_four()
    replayed(pair, 50)
    for party in pair.parties.values():
        assert party.core.replays.tally.agreed == 1
        assert not party.exchange.alarmed(pair.job.now)
        assert list(party.exchange.replica.reports()) == []


def test_a_rank_is_named_alike_by_both_agents() -> None:
    pair = pair_of_four()
    replayed(pair, 50, {2: broken(result(50), Part.OUTPUT)})
    told = {name: pair.confirmed(name) for name in pair.parties}
    for verdicts in told.values():
        (verdict,) = verdicts
        assert (verdict.cause, implicated(verdict)) == (Cause.SDC_OUTPUT, [2])
        assert [c.rank for c in verdict.cleared] == [0, 1, 3]
        assert verdict.implicated[0].node == "b"
    assert told["a"][0].id == told["b"][0].id


def test_a_rank_that_disagrees_with_itself_is_named_by_both() -> None:
    pair = pair_of_four()
    replayed(pair, 50, {1: restless(result(50), Part.OUTPUT)})
    assert [implicated(v) for name in pair.parties for v in pair.confirmed(name)] == [[1], [1]]


def test_who_is_named_already_keeps_nobody_exchanging() -> None:
    pair = pair_of_four()
    replayed(pair, 50, {2: broken(result(50), Part.OUTPUT)})
    pair.run(8.0)
    for step in range(51, 55):
        replayed(pair, step, {2: broken(result(step), Part.OUTPUT)})
        assert not any(party.exchange.alarmed(pair.job.now) for party in pair.parties.values())
    assert [len(pair.confirmed(name)) for name in pair.parties] == [1, 1]


def test_a_tie_across_nodes_names_nobody() -> None:
    pair = pair_of_four()
    replayed(pair, 50, {r: broken(result(50), Part.OUTPUT) for r in (2, 3)})
    for name in pair.parties:
        (verdict,) = pair.confirmed(name)
        assert implicated(verdict) == []


def timed(pair: Pair, steps: range, slow: dict[int, float], dice: random.Random) -> None:
    """These rounds, with 2 % of jitter."""
    for step in steps:
        times = {rank: int(5e6 * dice.gauss(1, 0.02) * slow.get(rank, 1.0)) for rank in pair.job.ranks}
        replayed(pair, step, {rank: result(step, module_ns=ns) for rank, ns in times.items()})


def test_a_slow_rank_is_named_alike_by_both_agents_in_the_third_round() -> None:
    pair = pair_of_four()
    timed(pair, range(50, 52), {2: 2.0}, random.Random(1))
    assert not any(party.exchange.alarmed(pair.job.now) for party in pair.parties.values())
    timed(pair, range(52, 53), {2: 2.0}, random.Random(2))
    told = [verdict for name in pair.parties for verdict in pair.confirmed(name)]
    assert [(v.cause, implicated(v)) for v in told] == [(Cause.COMPUTE_STRAGGLER, [2])] * 2
    assert told[0].id == told[1].id
    assert told[0].summary == told[1].summary
    assert (told[0].implicated, told[0].cleared) == (told[1].implicated, told[1].cleared)
    assert told[0].evidence == told[1].evidence
    assert told[0].implicated[0].node == "b"


def test_a_slow_rank_that_is_named_keeps_nobody_exchanging_until_it_is_quick_again() -> None:
    pair, dice = pair_of_four(), random.Random(3)
    timed(pair, range(50, 53), {2: 2.0}, dice)
    pair.run(8.0)
    for step in range(53, 57):
        timed(pair, range(step, step + 1), {2: 2.0}, dice)
        assert not any(party.exchange.alarmed(pair.job.now) for party in pair.parties.values())
    assert [len(pair.confirmed(name)) for name in pair.parties] == [1, 1]
    timed(pair, range(57, 64), {}, dice)
    for party in pair.parties.values():
        assert [v.state for v in party.verdicts] == [State.RESOLVED]
        assert not party.exchange.alarmed(pair.job.now)


def test_a_second_slow_rank_is_named_beside_the_first() -> None:
    ranks = {"a": (0, 1, 2), "b": (3, 4, 5)}
    pair, dice = Pair(Replaying(6, Settings(stall_timeout_s=500.0)), ranks), random.Random(4)
    for steps, slow in ((range(50, 53), {2: 2.0}), (range(53, 57), {2: 2.0, 4: 1.5})):
        for step in steps:
            times = {r: int(5e6 * dice.gauss(1, 0.02) * slow.get(r, 1.0)) for r in pair.job.ranks}
            replayed(pair, step, {rank: result(step, module_ns=ns) for rank, ns in times.items()})
    for name in pair.parties:
        newest = {v.id: implicated(v) for v in pair.confirmed(name)}
        assert sorted(newest.values()) == [[2], [4]]


def test_a_slow_rank_whose_results_were_kept_for_minutes_is_named() -> None:
    """The files tell the results of two minutes; three rounds of a recipe may take longer."""
    pair, dice = pair_of_four(), random.Random(5)
    for step in range(50, 53):
        timed(pair, range(step, step + 1), {0: 2.0}, dice)
        for rank in pair.job.ranks:
            pair.job.change(rank, replays=())
        pair.run(150.0)
    assert [implicated(v) for name in pair.parties for v in pair.confirmed(name)] == [[0], [0]]


def test_times_are_judged_although_a_rank_computes_wrongly() -> None:
    pair, dice = pair_of_four(), random.Random(6)
    replayed(pair, 50, {1: broken(result(50), Part.OUTPUT)})
    for step in range(51, 55):
        times = {r: int(5e6 * dice.gauss(1, 0.02) * (2.0 if r == 3 else 1.0)) for r in pair.job.ranks}
        told = {r: result(step, module_ns=ns) for r, ns in times.items()}
        replayed(pair, step, told | {1: broken(told[1], Part.OUTPUT)})
    for name in pair.parties:
        slow = [implicated(v) for v in pair.confirmed(name) if v.cause is Cause.COMPUTE_STRAGGLER]
        assert slow[:1] == [[3]]


def test_verdicts_of_both_agents_are_found_again_from_the_evidence_of_either() -> None:
    pair, dice = pair_of_four(), random.Random(7)
    timed(pair, range(50, 53), {2: 2.0}, dice)
    replayed(pair, 53, {1: broken(result(53), Part.OUTPUT)})
    for name, party in pair.parties.items():
        assert len(pair.confirmed(name)) == 2
        for verdict in pair.confirmed(name):
            moment = party.core.moment(verdict.id)
            assert moment is not None
            found = {v.id: v for v in judge_again(moment, pair.job.now)}[verdict.id]
            assert (found.summary, found.implicated, found.cleared, found.evidence) == (
                verdict.summary,
                verdict.implicated,
                verdict.cleared,
                verdict.evidence,
            )
