"""Silent corruption: replay rounds judged, from a rank's signatures to a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scoutd.agent.replay import Part
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Action, Cause, State, Status, Symptom
from tests.unit.agent.job import implicated
from tests.unit.agent.replaying import Replaying, broken, restless, result

CAUSES = {
    Part.INPUT: Cause.SDC_BROADCAST,
    Part.PARAMETER: Cause.SDC_PARAMETER,
    Part.OUTPUT: Cause.SDC_OUTPUT,
    Part.INPUT_GRADIENT: Cause.SDC_GRADIENT,
    Part.PARAMETER_GRADIENT: Cause.SDC_GRADIENT,
}


def test_equal_results_are_no_verdict() -> None:
    job = Replaying(8)
    assert job.replays(50) == []
    assert (job.core.replays.tally.agreed, job.core.verdicts) == (1, ())


@pytest.mark.parametrize("part", CAUSES)
def test_one_rank_is_named_by_the_first_part_that_differs(part: Part) -> None:
    job = Replaying(8)
    job.replays(50)
    later = [p for p in CAUSES if p >= part]
    opened, confirmed = job.replays(100, {3: broken(result(100), *later)})
    assert (opened.state, confirmed.state) == (State.OPEN, State.CONFIRMED)
    assert implicated(confirmed) == [3]
    assert (confirmed.cause, confirmed.symptom) == (CAUSES[part], Symptom.SDC)
    assert (confirmed.status, confirmed.action) == (Status.ATTRIBUTED, Action.DIAGNOSE_HARDWARE)
    assert [c.rank for c in confirmed.cleared] == [0, 1, 2, 4, 5, 6, 7]
    assert confirmed.implicated[0].node == "node-1"


def test_verdict_tells_recipe_module_and_both_values() -> None:
    job = Replaying(4)
    sick = broken(result(50), Part.OUTPUT)
    verdict = job.replays(50, {2: sick})[-1]
    assert verdict.operation == "BLOCK blocks.1 (Block)"
    line = verdict.evidence[0]
    assert line.rank == 2
    assert f"{sick.signatures[Part.OUTPUT]:016x}" in line.text
    assert f"{result(50).signatures[Part.OUTPUT]:016x}" in line.text
    assert "recipe 000000000000b10c" in line.text
    assert "step 50" in line.text


def test_two_of_five_are_both_named() -> None:
    job = Replaying(5)
    verdict = job.replays(50, {r: broken(result(50), Part.OUTPUT, by=r + 1) for r in (1, 4)})[-1]
    assert implicated(verdict) == [1, 4]


def test_two_ranks_with_different_faults_are_two_verdicts() -> None:
    job = Replaying(5)
    sick = {1: broken(result(50), Part.PARAMETER, Part.OUTPUT), 4: broken(result(50), Part.OUTPUT)}
    job.replays(50, sick)
    assert [(v.cause, implicated(v)) for v in job.confirmed()] == [
        (Cause.SDC_PARAMETER, [1]),
        (Cause.SDC_OUTPUT, [4]),
    ]


def test_a_tie_names_nobody() -> None:
    job = Replaying(4)
    verdict = job.replays(50, {r: broken(result(50), Part.OUTPUT) for r in (0, 3)})[-1]
    assert (verdict.status, verdict.implicated, verdict.cleared) == (Status.INCONCLUSIVE, (), ())
    assert verdict.cause is Cause.SDC_OUTPUT
    assert "ranks 1 and 2" in " ".join(e.text for e in verdict.evidence)


def test_two_ranks_can_disagree_but_not_be_judged() -> None:
    job = Replaying(2)
    verdict = job.replays(50, {1: broken(result(50), Part.OUTPUT)})[-1]
    assert (verdict.status, verdict.implicated) == (Status.INCONCLUSIVE, ())


def test_a_named_rank_ends_the_verdict_that_named_nobody() -> None:
    job = Replaying(4)
    job.replays(50, {r: broken(result(50), Part.OUTPUT) for r in (0, 3)})
    job.replays(100, {3: broken(result(100), Part.OUTPUT)})
    states = [(v.state, implicated(v)) for v in job.core.verdicts]
    assert states == [(State.RESOLVED, []), (State.CONFIRMED, [3])]


def test_a_round_waits_for_missing_results_and_never_takes_them_for_agreement() -> None:
    job = Replaying(4, Settings(stall_timeout_s=500.0))
    sick = {3: broken(result(50), Part.OUTPUT)}
    assert job.replays(50, sick, missing=(0,)) == []
    reports = job.run(31.0)
    assert implicated(reports[-1]) == []  # two of four are no strict majority
    assert job.core.replays.tally.agreed == 0


def test_silence_of_a_minority_does_not_protect_the_sick() -> None:
    job = Replaying(5, Settings(stall_timeout_s=500.0))
    job.replays(50, {3: broken(result(50), Part.OUTPUT)}, missing=(0,))
    verdict = job.run(31.0)[-1]
    assert implicated(verdict) == [3]
    assert [c.rank for c in verdict.cleared] == [1, 2, 4]
    assert "no result of 1 of 5 ranks" in verdict.evidence[-1].text


def test_a_rank_that_disagrees_with_itself_is_named() -> None:
    """Its first run was right: only the second tells."""
    job = Replaying(4)
    verdict = job.replays(50, {1: restless(result(50), Part.OUTPUT)})[-1]
    assert (implicated(verdict), verdict.cause) == ([1], Cause.SDC_OUTPUT)
    assert "two runs" in verdict.implicated[0].reason


def test_a_recipe_that_is_not_deterministic_is_set_aside() -> None:
    job = Replaying(4)
    wild = {r: restless(broken(result(50), Part.OUTPUT, by=r), Part.OUTPUT) for r in (0, 1, 2)}
    assert job.replays(50, wild) == []
    ((name, why),) = job.core.replays.aside_names()
    assert name == "BLOCK blocks.1 (Block)"
    assert "disagree with themselves" in why
    assert job.replays(100, {3: broken(result(100), Part.OUTPUT)}) == []


def test_a_recipe_that_is_seldom_steady_is_set_aside_by_and_by() -> None:
    job = Replaying(5)
    for step, rank in enumerate((0, 3, 4)):
        job.replays(50 + step, {rank: restless(result(50 + step), Part.OUTPUT)})
    assert job.core.replays.aside_names()


def test_parameters_that_were_never_replicas_are_set_aside() -> None:
    job = Replaying(4)
    assert job.replays(50, {r: broken(result(50), Part.PARAMETER, by=r) for r in range(4)}) == []
    assert "no two ranks" in job.core.replays.aside_names()[0][1]


def test_replicas_that_fall_apart_are_a_divergence() -> None:
    job = Replaying(4)
    verdict = job.replays(50, {r: broken(result(50), Part.PARAMETER) for r in (0, 1)})[-1]
    assert (verdict.cause, verdict.status) == (Cause.STATE_DIVERGENCE, Status.INCONCLUSIVE)


def test_nan_where_peers_are_finite() -> None:
    job = Replaying(4)
    sick = replace(broken(result(50), Part.OUTPUT), nonfinite=1 << Part.OUTPUT)
    verdict = job.replays(50, {1: sick})[-1]
    assert (verdict.cause, implicated(verdict)) == (Cause.NONFINITE, [1])


def test_nan_of_everybody_is_neither_fault_nor_agreement() -> None:
    job = Replaying(4)
    told = {r: replace(result(50), nonfinite=1 << Part.OUTPUT) for r in range(4)}
    assert job.replays(50, told) == []
    assert job.core.replays.tally.agreed == 0


def test_progress_resolves_nothing_and_more_of_the_same_is_one_verdict() -> None:
    job = Replaying(4)
    for step in range(50, 90):
        job.replays(step, {1: broken(result(step), Part.OUTPUT)})
    (verdict,) = job.core.verdicts
    assert (verdict.state, implicated(verdict)) == (State.CONFIRMED, [1])
    assert len(verdict.evidence) <= 32
    assert verdict.evidence[-1].text == "seen in 40 rounds"


def test_another_rank_is_another_verdict() -> None:
    job = Replaying(5)
    job.replays(50, {1: broken(result(50), Part.OUTPUT)})
    job.replays(51, {r: broken(result(51), Part.OUTPUT) for r in (1, 2)})
    assert [implicated(v) for v in job.confirmed()] == [[1], [2]]


def test_a_restart_resolves_it() -> None:
    job = Replaying(4)
    job.replays(50, {1: broken(result(50), Part.OUTPUT)})
    job.generation += 1
    job.replays(10)
    assert [v.state for v in job.core.verdicts] == [State.RESOLVED]


def test_a_hang_of_the_same_rank_is_a_verdict_of_its_own() -> None:
    job = Replaying(4, Settings(stall_timeout_s=5.0))
    job.replays(50, {1: broken(result(50), Part.OUTPUT)})
    for rank in (0, 2, 3):
        job.waits(rank)
    job.hangs(1)
    job.run(3.0)
    assert {v.cause for v in job.confirmed()} == {Cause.SDC_OUTPUT, Cause.RANK_STALLED}


def test_equal_evidence_gives_equal_ids() -> None:
    ids = []
    for _ in range(2):
        job = Replaying(4)
        ids.append(job.replays(50, {1: broken(result(50), Part.OUTPUT)})[-1].id)
    assert ids[0] == ids[1]
