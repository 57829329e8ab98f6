"""What the agent tells of a job's parallel layout."""

from __future__ import annotations

from typing import Any

import pytest

from scoutd.daemon.jobs import Job
from scoutd.daemon.serve import layout
from scoutd.proto.v1 import query_pb2 as pb
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


def parts(split: dict[str, list[int]]) -> dict[str, pb.JobTopology]:
    """A job of four ranks, as the agents of its nodes see it."""
    found = {}
    for node, ranks in split.items():
        part = layout.encode_part(job({rank: told(rank // 2, rank % 2) for rank in ranks}))
        kept = [place for place in part.ranks if place.rank in ranks]
        part.ClearField("ranks")
        part.ranks.extend(pb.RankPlace(rank=p.rank, node=node, coordinates=p.coordinates) for p in kept)
        found[node] = part
    return found


def test_the_parts_of_all_agents_make_the_whole() -> None:
    seen = parts({"a": [0, 1], "b": [2, 3]})
    found = layout.whole(seen["a"], {"b": seen["b"].SerializeToString()})
    assert [(place.rank, place.node) for place in found.ranks] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert [list(group.ranks) for group in found.peer_groups] == [[0, 2], [1, 3]]
    assert len(found.meshes) == 1
    assert list(found.missing) == []


def test_agents_that_do_not_tell_or_tell_of_another_generation_are_named() -> None:
    seen = parts({"a": [0, 1], "b": [2, 3]})
    seen["b"].generation += 1
    others = {"b": seen["b"].SerializeToString(), "c": None, "d": b"", "e": b"\xff\xff"}
    found = layout.whole(seen["a"], others)
    assert list(found.missing) == ["b", "c", "d", "e"]
    assert [place.rank for place in found.ranks] == [0, 1]


def test_a_mesh_of_too_many_dimensions_is_left_out() -> None:
    seen = parts({"a": [0, 1], "b": [2, 3]})
    seen["b"].meshes.add(names=["x"], shape=[1 << 20] * 4000)
    found = layout.whole(seen["a"], {"b": seen["b"].SerializeToString()})
    assert [list(mesh.shape) for mesh in found.meshes] == [[2, 2]]
    assert list(found.missing) == []


def test_a_part_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    one = job({rank: told(rank // 2, rank % 2) for rank in range(4)})
    monkeypatch.setattr(layout, "PART_BYTES", 200)
    assert len(layout.part_for_others(one)) <= 200
    monkeypatch.setattr(layout, "PART_BYTES", 8)
    assert layout.part_for_others(one) == b""


def test_the_whole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = parts({"a": [0, 1], "b": [2, 3]})
    monkeypatch.setattr(layout, "WHOLE_BYTES", seen["a"].ByteSize() + 1)
    assert list(layout.whole(seen["a"], {"b": seen["b"].SerializeToString()}).missing) == ["b"]
