"""What the agent tells of a job's parallel layout."""

from __future__ import annotations

from typing import Any

import pytest

from scoutd.daemon.jobs import Job
from scoutd.daemon.serve import layout
from tests.unit.daemon_serve import fakes


def told(d: int, t: int, **more: Any) -> dict[str, Any]:
    mesh = {"names": ["dp", "tp"], "shape": [2, 2]}
    return {"coordinates": {"d": d, "t": t}, "mesh": mesh, "wrapper": "DDP", **more}


def job(topology: dict[int, dict[str, Any]]) -> Job:
    return Job(fakes.observation(topology=topology), fakes.FakeCore(), 0)


def test_peers_and_meshes_are_told_once() -> None:
    found = layout.encode_topology(job({rank: told(rank // 2, rank % 2) for rank in range(4)}))
    assert [(list(m.names), list(m.shape)) for m in found.meshes] == [(["dp", "tp"], [2, 2])]
    assert [(g.kind, list(g.ranks)) for g in found.peer_groups] == [
        ("REPLICATED", [0, 2]),
        ("REPLICATED", [1, 3]),
    ]
    (warning,) = found.warnings
    assert "fewer than 3" in warning


def test_a_mesh_that_does_not_cover_the_world_and_a_place_claimed_twice_are_told() -> None:
    small = {"mesh": {"names": ["dp"], "shape": [3]}}
    found = layout.encode_topology(job({r: told(min(r, 2), 0, **small) for r in range(4)}))
    assert "mesh dp=3 has 3 ranks, the job has 4" in found.warnings
    assert "ranks 2, 3 claim the same coordinates (d=2, t=0)" in found.warnings


def test_a_job_that_tells_no_layout_has_no_warnings() -> None:
    found = layout.encode_topology(job({}))
    assert (list(found.warnings), list(found.peer_groups), list(found.meshes)) == ([], [], [])


@pytest.mark.parametrize(
    "mesh", [None, [], {"names": 1, "shape": 2}, {"names": [], "shape": []}, {"names": [], "shape": [-1]}]
)
def test_a_mesh_of_another_form_is_left_out(mesh: Any) -> None:
    assert layout.mesh_of({"mesh": mesh}) is None


@pytest.mark.parametrize("axes", [None, 3, {"d": -1}, {"d": True}, {"x": 1}, {"t": 1 << 40}])
def test_coordinates_of_another_form_are_left_out(axes: Any) -> None:
    assert layout.address_of({"coordinates": axes}) == {}
