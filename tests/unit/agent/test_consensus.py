"""C3, exact and statistical: what agrees, what is attributed, why not."""

from __future__ import annotations

import math
from collections.abc import Hashable

import pytest

from scoutd.agent.consensus import Floors, Signature, exact, statistical
from scoutd.agent.verdict import Status

NAN, INF = math.nan, math.inf
AGREE, ATTRIBUTED, INCONCLUSIVE = Status.AGREE, Status.ATTRIBUTED, Status.INCONCLUSIVE


@pytest.mark.parametrize(
    ("items", "status", "outliers", "reason"),
    [
        ([5, 5, 5], AGREE, [], ""),
        ([5, 5], AGREE, [], ""),
        ([5, 5, 6], ATTRIBUTED, [2], ""),
        ([5, 6, 5, 7, 5], ATTRIBUTED, [1, 3], ""),
        ([5, 6, 5, 6], INCONCLUSIVE, [], "no strict majority"),
        ([5, 6, 7], INCONCLUSIVE, [], "no strict majority"),
        ([5, 6], INCONCLUSIVE, [], "too few: a group of 2"),
        ([5, 5, None], INCONCLUSIVE, [], "evidence of 1 missing"),
        ([5, 5, 6, None], INCONCLUSIVE, [], "no strict majority"),
        ([5, 5, 5, 6, None], ATTRIBUTED, [3], ""),
        ([None, None, None], INCONCLUSIVE, [], "no evidence"),
        ([], INCONCLUSIVE, [], "no evidence"),
        ([NAN, 1.0, 1.0], ATTRIBUTED, [0], ""),
        ([NAN] * 3, INCONCLUSIVE, [], "not finite: all 3"),
        ([INF] * 3, INCONCLUSIVE, [], "not finite: all 3"),
        ([NAN, NAN, 1.0], INCONCLUSIVE, [], "no strict majority"),
        ([(1, NAN)] * 2 + [(1, 2.0)] * 3, ATTRIBUTED, [0, 1], ""),
        ([1.0, NAN], INCONCLUSIVE, [], "too few: a group of 2"),
    ],
)
def test_exact(items: list[Hashable | None], status: Status, outliers: list[int], reason: str) -> None:
    found = exact(items)
    assert (found.status, found.reason) == (status, reason)
    assert found.outliers == tuple(index in outliers for index in range(len(items)))
    assert len(found.evidence) == len(items)


def test_signatures() -> None:
    good, bad, unsound = Signature(1, 7), Signature(1, 8), Signature(1, 7, finite=False)
    assert exact([good] * 3).status is AGREE
    assert exact([good, good, bad]).outliers == (False, False, True)
    assert exact([good, good, unsound]).outliers == (False, False, True)
    assert exact([unsound] * 3).reason == "not finite: all 3"


def test_schemes_are_not_compared() -> None:
    mixed = [Signature(1, 7), Signature(1, 7), Signature(1, 7), Signature(2, 7)]
    assert exact(mixed).status is INCONCLUSIVE
    assert exact(mixed).reason == "mixed schemes: 1, 2"
    assert not any(exact(mixed).outliers)


@pytest.mark.parametrize(
    ("values", "status", "outliers", "reason"),
    [
        ([10.0, 10.1, 9.9, 10.05], AGREE, [], ""),
        ([10.0, 10.1, 9.9, 14.0], ATTRIBUTED, [3], ""),
        ([10.0, 10.1, 9.9, 6.0], ATTRIBUTED, [3], ""),
        ([14.0, 10.1, 9.9, 10.0, 15.0], ATTRIBUTED, [0, 4], ""),
        ([10.0, 10.0, 14.0, 14.0], AGREE, [], ""),
        ([5.0] * 8, AGREE, [], ""),
        ([5.0] * 5 + [9.0], ATTRIBUTED, [5], ""),
        ([5.0, 5.0, 5.0, 5.0, 5.1, 5.2, 99.0], ATTRIBUTED, [6], ""),
        ([5.0, 5.0], AGREE, [], ""),
        ([5.0, 9.0], AGREE, [], ""),
        ([5.0, NAN], INCONCLUSIVE, [], "too few: a group of 2"),
        ([5.0, 5.1, NAN], ATTRIBUTED, [2], ""),
        ([5.0, 5.1, INF, None], INCONCLUSIVE, [], "no strict majority"),
        ([5.0, 5.0, 5.0, INF, None], ATTRIBUTED, [3], ""),
        ([NAN] * 3, INCONCLUSIVE, [], "not finite: all 3"),
        ([5.0, 5.1, None], INCONCLUSIVE, [], "evidence of 1 missing"),
        ([None] * 3, INCONCLUSIVE, [], "no evidence"),
        ([10.0, 10.1, 9.9, 14.0, None, None, None], INCONCLUSIVE, [], "no strict majority"),
    ],
)
def test_statistical(values: list[float | None], status: Status, outliers: list[int], reason: str) -> None:
    found = statistical(values)
    assert (found.status, found.reason) == (status, reason)
    assert found.outliers == tuple(index in outliers for index in range(len(values)))
    assert found.evidence == tuple(values)


def test_floors() -> None:
    quiet = [1.0, 1.001, 0.999, 1.0005, 1.05]
    assert statistical(quiet).outliers[4]
    assert statistical(quiet, floors=Floors(relative=0.1)).status is AGREE
    assert statistical(quiet, floors=Floors(absolute=0.06)).status is AGREE
    assert statistical(quiet, floors=Floors(0.01, 0.01)).outliers[4]


def test_the_limit_is_told() -> None:
    found = statistical([1.0, 2.0, 3.0, 4.0, 50.0])
    assert found.centre == 3.0
    assert found.limit == pytest.approx(3.5 * 1.4826)
    assert statistical([1.0, 2.0, 3.0, 4.0, 50.0], kappa=1000).status is AGREE


def test_extreme_values_do_no_harm() -> None:
    assert statistical([1e308, -1e308, 1e308, -1e308]).status is AGREE
    assert statistical([5e-324] * 4).status is AGREE
