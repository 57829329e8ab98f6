"""Peers of SCOUT §1 and what is said about layouts that cannot be compared."""

from __future__ import annotations

import pytest

from scoutd.agent.topology import Mesh, PeerKind, collisions, degrees, peer_groups, warnings


def layout(**sizes: int) -> dict[int, dict[str, int]]:
    """A full grid; the last axis varies fastest."""
    grid: list[dict[str, int]] = [{}]
    for axis, size in sizes.items():
        grid = [{**place, axis: value} for place in grid for value in range(size)]
    return dict(enumerate(grid))


def members(addresses: dict[int, dict[str, int]]) -> list[tuple[int, ...]]:
    return [group.ranks for group in peer_groups(addresses)]


def test_the_papers_example() -> None:
    """SCOUT §1: shape (4,1,2,1,1,1), rank = 2d + t → {0,2,4,6}, {1,3,5,7}."""
    addresses = layout(d=4, s=1, t=2, p=1, c=1, e=1)
    assert members(addresses) == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert {group.kind for group in peer_groups(addresses)} == {PeerKind.REPLICATED}


def test_pure_sharding_compares_shards() -> None:
    groups = peer_groups(layout(p=2, s=4))
    assert [(g.kind, g.ranks) for g in groups] == [
        (PeerKind.SHARD, (0, 1, 2, 3)),
        (PeerKind.SHARD, (4, 5, 6, 7)),
    ]


def test_hybrid_sharding_compares_replicas_of_the_same_shard() -> None:
    assert members(layout(d=4, s=2)) == [(0, 2, 4, 6), (1, 3, 5, 7)]


@pytest.mark.parametrize("axis", ["t", "p", "c", "e"])
def test_other_axes_separate_peers(axis: str) -> None:
    assert members(layout(d=3, **{axis: 2})) == [(0, 2, 4), (1, 3, 5)]


def test_order_follows_the_coordinate_and_not_the_rank() -> None:
    assert members({0: {"d": 2}, 1: {"d": 0}, 2: {"d": 1}}) == [(1, 2, 0)]


def test_an_axis_that_is_not_named_has_one_value() -> None:
    assert degrees({0: {"d": 0}, 1: {"d": 1, "t": 0}}) == {"d": 2, "t": 1}
    assert members({0: {"d": 0}, 1: {"d": 1, "t": 0}}) == [(0, 1)]


def test_ranks_without_coordinates_are_in_no_group_and_are_told() -> None:
    addresses = {**layout(d=3), 3: {}, 4: {}}
    assert members(addresses) == [(0, 1, 2)]
    assert warnings(addresses, [], 5) == ("coordinates of ranks 3, 4 are unknown, nobody is their peer",)


def test_two_ranks_at_one_place() -> None:
    addresses = {0: {"d": 0}, 1: {"d": 1}, 2: {"d": 1, "t": 0}, 3: {"d": 2}}
    assert collisions(addresses) == ((1, 2),)
    assert "ranks 1, 2 claim the same coordinates (d=1)" in warnings(addresses, [], 4)


def test_a_mesh_must_cover_the_world() -> None:
    mesh = Mesh(("dp", "tp"), (3, 2))
    assert warnings(layout(d=3, t=2), [mesh, mesh], 6) == ()
    assert warnings(layout(d=3, t=2), [mesh, mesh], 8) == ("mesh dp=3 × tp=2 has 6 ranks, the job has 8",)


def test_small_groups_are_told_once() -> None:
    (warning,) = warnings(layout(d=2, t=3), [], 6)
    assert warning == (
        "3 peer groups have fewer than 3 ranks (ranks 0, 3, ranks 1, 4 …): "
        "comparing peers cannot name a rank there"
    )


def test_a_healthy_layout_has_no_warnings() -> None:
    assert warnings(layout(d=3), [], 3) == ()
