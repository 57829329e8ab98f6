"""Where this rank stands in the job's parallel layout, as far as it is cheaply known.

Coordinates are d, s, t, p, c, e (SCOUT §1: data replica, shard, tensor, pipeline, context, expert). In order
of trust they come from an explicit argument; the device mesh of an FSDP2, HSDP or tensor-parallel root, seen
up to its outermost mesh; the process groups that device meshes made (torch describes them as "mesh_tp"); a
DDP wrapper (d is the rank's place in its group). The wrapper is DDP, FSDP2, HSDP or none.

A wrapper says the axes of its own mesh (FSDP2: shard; HSDP: replica and shard), other dimensions are known
by their names. Several dimensions of one axis (dp_shard_mod_ep, dp_shard_in_ep) count as one, outer first. A
flattened dimension repeats others and is left out. Absence means that nothing is known, not that there is
no parallelism.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch
import torch.distributed.distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

_AXES: Final = {
    "d": {"replicate", "ddp", "data", "dp"},
    "s": {"shard", "fsdp", "zero", "efsdp", "edp"},
    "t": {"tp", "tensor", "model", "mp", "etp"},
    "p": {"pp", "pipe", "pipeline", "stage"},
    "c": {"cp", "context", "sp", "seq", "sequence", "ulysses", "ring"},
    "e": {"ep", "expert", "experts", "moe"},
}
_PRECEDENCE: Final = "stpced"
"""A name with several words ("dp_shard", "dp_shard_in_ep", "dp_replicate") stands for the first of these."""

_MADE_BY_MESH: Final = "mesh_"


class Dimension(NamedTuple):
    """One dimension of a mesh: its name (None: none given), size, and this rank's place."""

    name: str | None
    size: int
    place: int


def axis_of(name: str) -> str | None:
    """The coordinate that a mesh dimension's name stands for, None if it is not known."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    return next((axis for axis in _PRECEDENCE if words & _AXES[axis]), None)


def describe(root: torch.nn.Module | None, rank: int, given: Mapping[str, int] | None) -> str:
    """The topology as JSON: {"coordinates": {...}, "mesh": {"names", "shape"} or null, "wrapper"}."""
    wrapper, mesh = _wrapper_of(root)
    roles = _roles(wrapper, mesh)
    dimensions = _dimensions(None if mesh is None else _outermost(mesh))
    coordinates = coordinates_of(dimensions, roles)
    for axis, place in coordinates_of(_from_groups(), roles).items():
        coordinates.setdefault(axis, place)
    if wrapper == "DDP" and "d" not in coordinates:
        coordinates["d"] = _place_in_ddp(root, rank)
    if given:
        coordinates = {str(axis): int(value) for axis, value in given.items()}
    shape = {"names": [d.name for d in dimensions if d.name], "shape": [d.size for d in dimensions]}
    return json.dumps({"coordinates": coordinates, "mesh": shape if dimensions else None, "wrapper": wrapper})


def coordinates_of(dimensions: Iterable[Dimension], roles: Mapping[str | None, str]) -> dict[str, int]:
    """Coordinates from a mesh's dimensions, outermost first. ``roles``: axes of dimensions whose use is
    known, whatever their names say."""
    found: dict[str, int] = {}
    for dimension in dimensions:
        axis = roles.get(dimension.name) or axis_of(dimension.name or "")
        if axis is not None:
            found[axis] = found.get(axis, 0) * dimension.size + dimension.place
    return found


def _wrapper_of(root: torch.nn.Module | None) -> tuple[str, Any]:
    """The wrapper's name and its device mesh, None where it has none."""
    if root is None:
        return "none", None
    if isinstance(root, DistributedDataParallel):
        return "DDP", getattr(root, "device_mesh", None) or _mesh_of_parameters(root)
    for module in root.modules():
        state = getattr(module, "_get_fsdp_state", None)
        group = getattr(state(), "_fsdp_param_group", None) if callable(state) else None
        if group is not None:
            mesh = group.mesh_info.mesh
            return ("HSDP" if mesh.ndim > 1 else "FSDP2"), mesh
    return "none", _mesh_of_parameters(root)


def _roles(wrapper: str, mesh: Any) -> dict[str | None, str]:
    """What the wrapper uses its own mesh's dimensions for."""
    axes = {"FSDP2": "s", "HSDP": "ds", "DDP": "d"}.get(wrapper, "")
    if mesh is None or mesh.ndim != len(axes):
        return {}
    return dict(zip(mesh.mesh_dim_names or [None] * mesh.ndim, axes, strict=True))


def _mesh_of_parameters(root: torch.nn.Module) -> Any:
    """The mesh of the first parameter that is a DTensor."""
    meshes = (getattr(parameter, "device_mesh", None) for parameter in root.parameters())
    return next((mesh for mesh in meshes if mesh is not None), None)


def _outermost(mesh: Any) -> Any:
    """The mesh that this one was cut out of. Before torch 2.10 a table knew it, later the mesh itself."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    from torch.distributed import device_mesh

    table = getattr(device_mesh, "_mesh_resources", None)
    return table.get_root_mesh(mesh) if table is not None else mesh


def _dimensions(mesh: Any) -> list[Dimension]:
    places = mesh.get_coordinate() if mesh is not None else None
    if places is None:
        return []
    sizes = [int(size) for size in mesh.mesh.shape]
    names = list(mesh.mesh_dim_names or [None] * len(sizes))
    return [Dimension(*each) for each in zip(names, sizes, map(int, places), strict=True)]


def _from_groups() -> list[Dimension]:
    """Dimensions whose groups device meshes made; of those that share an axis only the narrowest, because
    a flattened dimension ("dp_cp") contains others."""
    narrowest: dict[str, Dimension] = {}
    for group in list(c10d._world.pg_map):
        description = str(getattr(group, "group_desc", "") or "")
        name = description.removeprefix(_MADE_BY_MESH)
        axis = axis_of(name) if name != description else None
        found = Dimension(name, int(group.size()), int(group.rank()))
        if axis is not None and (axis not in narrowest or found.size < narrowest[axis].size):
            narrowest[axis] = found
    return list(narrowest.values())


def _place_in_ddp(root: torch.nn.Module | None, rank: int) -> int:
    group = getattr(root, "process_group", None)
    place = group.rank() if group is not None else rank
    return int(place)
