from __future__ import annotations

import pytest

from scoutd.shim.groups import group_id, runs_of


@pytest.mark.parametrize(
    ("ranks", "runs"),
    [
        ([0, 1, 2, 3], ((0, 1, 4),)),
        ([0, 2, 4, 6], ((0, 2, 4),)),
        ([5], ((5, 0, 1),)),
        ([0, 1, 4, 5], ((0, 1, 2), (4, 1, 2))),
        ([3, 1, 0], ((3, 0, 1), (1, 0, 1), (0, 0, 1))),  # group order is kept, strides never go down
        (list(range(8192)), ((0, 1, 8192),)),
    ],
)
def test_runs_hold_the_ranks_in_group_order(ranks: list[int], runs: tuple[tuple[int, int, int], ...]) -> None:
    assert runs_of(ranks) == runs
    assert [start + k * stride for start, stride, count in runs for k in range(count)] == ranks


def test_a_groups_identity_depends_on_name_and_members_and_not_on_their_order() -> None:
    assert group_id("0", [0, 1]) == group_id("0", [1, 0])
    assert len({group_id("0", [0, 1]), group_id("1", [0, 1]), group_id("0", [0, 2])}) == 3
    assert 0 < group_id("0", [0]) < 2**64
