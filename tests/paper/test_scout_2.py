"""SCOUT §2, consensus over a peer group: one test a claim."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from scoutd.agent.consensus import exact, statistical
from scoutd.agent.statistics import MAD_TO_SIGMA, median, robust_scale
from scoutd.agent.straggler import Stragglers, StragglerSettings
from scoutd.agent.verdict import Status
from scoutd.shim.signature import signature


def test_every_rank_comes_to_the_same_result() -> None:
    """ "E = all-gather; every rank applies the same rule": the result is a function of E alone."""
    evidence = [7, 7, 8, 7]
    assert exact(evidence) == exact(list(evidence))
    assert exact(evidence).evidence == tuple(evidence)


def test_exact_the_most_frequent_value_wins() -> None:
    """ "e* the most frequent value with count c*; else B[j] = (e_j ≠ e*)": figure 4, seven of eight."""
    found = exact([1] * 7 + [2])
    assert found.status is Status.ATTRIBUTED
    assert found.outliers == (False,) * 7 + (True,)


@pytest.mark.parametrize("evidence", [[1, 1, 2, 2], [1, 1, 2, 3], [1, 2, 3, 4, 5]])
def test_exact_no_strict_majority_is_never_guessed(evidence: list[int]) -> None:
    """ "c* ≤ N/2 → INCONCLUSIVE with a zero bitmap (also for several different minority values)"."""
    found = exact(evidence)
    assert found.status is Status.INCONCLUSIVE
    assert not any(found.outliers)


def test_exact_several_minority_values_beside_a_majority() -> None:
    """Two faults with two wrong answers are both attributed while more than half agree."""
    assert exact([1, 1, 1, 2, 3]).outliers == (False, False, False, True, True)


def test_statistical_figure_4() -> None:
    """Seven members near 10 ms, r7 at 14.5 ms beyond κ times the scale."""
    found = statistical([10.0, 10.1, 9.9, 10.05, 9.95, 10.2, 9.8, 14.5])
    assert found.status is Status.ATTRIBUTED
    assert found.outliers == (False,) * 7 + (True,)


def test_statistical_the_scale_falls_back() -> None:
    """ "MAD, else inter-quartile range, else scaled range"."""
    assert robust_scale([1, 2, 3, 4, 9]) == MAD_TO_SIGMA * 1
    assert robust_scale([5, 5, 5, 5, 6, 7, 9]) == pytest.approx(0.7413 * 1.5)
    assert robust_scale([5, 5, 5, 5, 5, 5, 11]) == pytest.approx(1.0)
    assert median([1, 2, 3, 10]) == 2.5


def test_statistical_no_spread_agrees() -> None:
    """ "d = 0 → AGREE"."""
    assert robust_scale([3.0] * 5) == 0
    assert statistical([3.0] * 5).status is Status.AGREE


def test_agree_and_inconclusive_are_kept_apart() -> None:
    """Both have a zero bitmap; "recovery differs"."""
    agree, tie = exact([1, 1, 1]), exact([1, 1, 2, 2])
    assert not any(agree.outliers + tie.outliers)
    assert {agree.status, tie.status} == {Status.AGREE, Status.INCONCLUSIVE}


def test_a_fault_that_all_share_agrees() -> None:
    """ "Not a correctness oracle: a common-mode bug agrees"."""
    wrong = signature(torch.full((4,), 13.0))
    assert exact([wrong] * 4).status is Status.AGREE


def test_a_slowdown_of_the_whole_group_is_missed_by_construction() -> None:
    healthy = [10.0, 10.1, 9.9, 10.05]
    assert statistical([3 * time for time in healthy]).status is Status.AGREE


def test_signatures_cover_type_shape_bytes_and_position() -> None:
    """ "A w = 64 bit position-sensitive signature of dtype, shape and bytes"."""
    values = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    others = [values.view(2, 2), values.view(torch.float32), values.flip(0), values + 1]
    signed = [signature(each) for each in [values, *others]]
    assert len(set(signed)) == 5
    assert all(0 <= each < 2**64 for each in signed)


def test_deviation_the_scale_is_that_of_a_standard_deviation() -> None:
    """The paper's d is the MAD; ours 1.4826 times it, as κ = 3.5 is recommended for that score."""
    values = [0.0, 1.0, 2.0, 3.0, 2.0 + 4.5]
    assert values[4] - median(values) > 3.5 * 1.0
    assert statistical(values).status is Status.AGREE


def test_deviation_one_round_confirms_no_straggler() -> None:
    """The paper flags in one round; we confirm after three independent ones."""
    slow = {0: 1.0, 1: 1.01, 2: 2.0, 3: 1.0}
    rule = Stragglers()
    assert [rule.observe("t_M", slow).confirmed for _ in range(3)] == [(), (), (2,)]
    assert Stragglers(replace(StragglerSettings(), rounds=1)).observe("t_M", slow).confirmed == (2,)
