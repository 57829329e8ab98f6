"""Coordinates from real device meshes and wrappers, on one rank of a job that exists in name only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from scoutd.shim import topology

RANK, WORLD = 5, 16


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    """Rank 5 of 16; collectives of the fake backend do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=WORLD)
    yield
    dist.destroy_process_group()


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))


def described(root: nn.Module | None, given: dict[str, int] | None = None) -> tuple[dict[str, int], Any, str]:
    found = json.loads(topology.describe(root, RANK, given))
    mesh = found["mesh"]
    return (
        found["coordinates"],
        mesh and dict(zip(mesh["names"] or [""], mesh["shape"], strict=True)),
        found["wrapper"],
    )


def test_ddp() -> None:
    assert described(DistributedDataParallel(model())) == ({"d": 5}, None, "DDP")


def test_fsdp2_without_names() -> None:
    root = fully_shard(model(), mesh=init_device_mesh("cpu", (WORLD,)))
    coordinates, _, wrapper = described(root)
    assert (coordinates, wrapper) == ({"s": 5}, "FSDP2")


def test_fsdp2_on_a_dimension_called_dp() -> None:
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("dp", "tp"))
    root = fully_shard(model(), mesh=mesh["dp"])
    assert described(root) == ({"s": 1, "t": 1}, {"dp": 4, "tp": 4}, "FSDP2")


def test_hsdp() -> None:
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("replicate", "shard"))
    assert described(fully_shard(model(), mesh=mesh)) == (
        {"d": 1, "s": 1},
        {"replicate": 4, "shard": 4},
        "HSDP",
    )


def test_hsdp_with_names_that_say_nothing() -> None:
    mesh = init_device_mesh("cpu", (2, 8), mesh_dim_names=("outer", "inner"))
    coordinates, _, wrapper = described(fully_shard(model(), mesh=mesh))
    assert (coordinates, wrapper) == ({"d": 0, "s": 5}, "HSDP")


def test_tensor_parallel_without_a_wrapper() -> None:
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("dp", "tp"))
    root = parallelize_module(model(), mesh["tp"], {"0": ColwiseParallel()})
    assert described(root) == ({"d": 1, "t": 1}, {"dp": 4, "tp": 4}, "none")


def test_four_dimensions_seen_from_an_fsdp_root() -> None:
    names = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    mesh = init_device_mesh("cpu", (2, 1, 2, 2, 2), mesh_dim_names=names)
    root = fully_shard(model(), mesh=mesh["dp_shard"])
    coordinates, shape, wrapper = described(root)
    assert coordinates == {"p": 0, "d": 0, "s": 1, "c": 0, "t": 1}
    assert shape == dict(zip(names, (2, 1, 2, 2, 2), strict=True))
    assert wrapper == "FSDP2"


def test_expert_parallel_by_name() -> None:
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("dp_shard", "ep"))
    root = fully_shard(model(), mesh=mesh["dp_shard"])
    assert described(root)[0] == {"s": 1, "e": 1}


def test_ddp_beside_pipeline_groups() -> None:
    """The mesh is nowhere in the model: its process groups tell."""
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("pp", "dp"))
    root = DistributedDataParallel(model(), process_group=mesh.get_group("dp"))
    assert described(root) == ({"p": 1, "d": 1}, None, "DDP")


def test_a_flattened_dimension_takes_no_axis() -> None:
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("dp", "cp"))
    mesh._flatten("dp_cp")
    assert described(None)[0] == {"d": 1, "c": 1}


def test_ddp_in_a_group_of_its_own() -> None:
    group = dist.new_group([1, 5, 9, 13])
    assert described(DistributedDataParallel(model(), process_group=group))[0] == {"d": 1}


def test_an_explicit_argument_wins() -> None:
    given = {"d": 2, "p": 1}
    assert described(DistributedDataParallel(model()), given)[0] == given


def test_nothing_is_known_of_a_plain_model() -> None:
    assert described(model()) == ({}, None, "none")
