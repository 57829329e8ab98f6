"""Replay rounds of a job on two nodes: tallies while all agree, results when they do not."""

from __future__ import annotations

from scoutd.agent.replay import Part, ReplayResult
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Cause
from tests.unit.agent.job import implicated
from tests.unit.agent.replaying import Replaying, broken, restless, result, view
from tests.unit.agent.test_party import Pair


def replayed(pair: Pair, step: int, sick: dict[int, ReplayResult] | None = None) -> None:
    """All ranks have told this round, and a few seconds have passed."""
    for rank in pair.job.ranks:
        told = ((sick or {}).get(rank, result(step)),)
        pair.job.change(rank, recipes=(view(peers=4),), replays=told)
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
