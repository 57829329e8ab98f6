"""Mesh dimensions → coordinates."""

from __future__ import annotations

import pytest

from scoutd.shim.topology import Dimension, axis_of, coordinates_of


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("dp", "d"),
        ("data_parallel", "d"),
        ("dp_replicate", "d"),
        ("replicate", "d"),
        ("dp_shard", "s"),
        ("fsdp", "s"),
        ("dp_shard_in_ep", "s"),
        ("TP", "t"),
        ("tensor", "t"),
        ("pp", "p"),
        ("cp", "c"),
        ("sp", "c"),
        ("ep", "e"),
        ("expert", "e"),
        ("step", None),
        ("x", None),
        ("", None),
    ],
)
def test_a_dimensions_name_says_its_axis(name: str, axis: str | None) -> None:
    assert axis_of(name) == axis


def test_a_three_dimensional_mesh() -> None:
    mesh = [Dimension("pp", 2, 1), Dimension("dp_shard", 4, 3), Dimension("tp", 2, 0)]
    assert coordinates_of(mesh, {}) == {"p": 1, "s": 3, "t": 0}


def test_a_wrapper_knows_better_than_a_name() -> None:
    mesh = [Dimension("dp", 4, 3), Dimension("tp", 2, 1)]
    assert coordinates_of(mesh, {}) == {"d": 3, "t": 1}
    assert coordinates_of(mesh, {"dp": "s"}) == {"s": 3, "t": 1}
    assert coordinates_of([Dimension(None, 4, 2)], {None: "s"}) == {"s": 2}


def test_dimensions_of_one_axis_count_as_one() -> None:
    mesh = [Dimension("dp_shard_mod_ep", 2, 1), Dimension("dp_shard_in_ep", 4, 2)]
    assert coordinates_of(mesh, {}) == {"s": 6}


def test_nameless_dimensions_without_a_role_are_unknown() -> None:
    assert coordinates_of([Dimension(None, 4, 2)], {}) == {}
    assert coordinates_of([], {}) == {}
