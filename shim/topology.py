"""Where this rank stands in the job's parallel layout, as far as it is cheaply known.

Coordinates are d, s, t, p, c, e (SCOUT §1: data replica, shard, tensor, pipeline, context, expert). They
come from an explicit argument, else from the device mesh of an FSDP2 root, else from a DDP wrapper (d is
the rank). The wrapper is DDP, FSDP2, HSDP or none. Absence means that nothing is known, not that there is
no parallelism.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

_AXES: Final = (
    ("replicate", "d"),
    ("shard", "s"),
    ("fsdp", "s"),
    ("tp", "t"),
    ("tensor", "t"),
    ("pp", "p"),
    ("pipe", "p"),
    ("cp", "c"),
    ("context", "c"),
    ("ep", "e"),
    ("expert", "e"),
    ("dp", "d"),
    ("data", "d"),
)


def axis_of(name: str) -> str | None:
    """The coordinate that a mesh dimension's name stands for, None if it is not known."""
    lowered = name.lower()
    return next((axis for part, axis in _AXES if part in lowered), None)


def describe(root: torch.nn.Module | None, rank: int, given: Mapping[str, int] | None) -> str:
    """The topology as JSON: {"coordinates": {...}, "mesh": {"names", "shape"} or null, "wrapper"}."""
    wrapper, mesh = _wrapper_of(root)
    coordinates: dict[str, int] = {}
    shape: dict[str, list[Any]] | None = None
    if mesh is not None:
        names = list(mesh.mesh_dim_names or ())
        sizes = [int(size) for size in mesh.mesh.shape]
        shape = {"names": names, "shape": sizes}
        coordinates = _from_mesh(names, list(mesh.get_coordinate() or ()), wrapper)
    elif wrapper == "DDP":
        coordinates = {"d": rank}
    if given:
        coordinates = {str(axis): int(value) for axis, value in given.items()}
    return json.dumps({"coordinates": coordinates, "mesh": shape, "wrapper": wrapper})


def _from_mesh(names: list[str], places: list[int], wrapper: str) -> dict[str, int]:
    if not names:
        axes = ["d", "s"] if wrapper == "HSDP" else ["s"]
        return dict(zip(axes[-len(places) :], places, strict=False))
    found: dict[str, int] = {}
    for name, place in zip(names, places, strict=False):
        axis = axis_of(name)
        if axis == "d" and wrapper == "FSDP2":
            axis = "s"
        if axis is not None:
            found[axis] = int(place)
    return found


def _wrapper_of(root: torch.nn.Module | None) -> tuple[str, Any]:
    """The wrapper's name and its device mesh, None where it has none."""
    if root is None:
        return "none", None
    if isinstance(root, DistributedDataParallel):
        return "DDP", getattr(root, "device_mesh", None)
    for module in root.modules():
        state = getattr(module, "_get_fsdp_state", None)
        group = getattr(state(), "_fsdp_param_group", None) if callable(state) else None
        if group is not None:
            mesh = group.mesh_info.mesh
            return ("HSDP" if mesh.ndim > 1 else "FSDP2"), mesh
    return "none", None
