"""The wire form of a job's parallel layout: places, meshes, process groups, peers, and what is odd.

Answers for the ranks that this agent observes; coordinates come from the trainer's process, so whatever is
not of the expected form is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from scoutd.agent import topology
from scoutd.agent.evidence import GroupView, RankReport
from scoutd.daemon.jobs import Job
from scoutd.proto.v1 import query_pb2 as pb

MAX_MESH_DIMENSIONS: Final = 8


def encode_topology(job: Job) -> pb.JobTopology:
    """Where each rank is, which process groups exist and who can be compared with whom."""
    report = job.observation.report
    told = job.observation.topology
    addresses = {rank.rank: address_of(told.get(rank.rank, {})) for rank in report.ranks}
    meshes = {mesh for each in told.values() if (mesh := mesh_of(each)) is not None}
    return pb.JobTopology(
        job=job.name,
        generation=job.generation,
        world_size=report.world_size,
        ranks=[_place(rank, report.node, addresses[rank.rank]) for rank in report.ranks],
        groups=_groups(report.ranks),
        warnings=[*job.observation.warnings, *_warnings(addresses, meshes, report.world_size)],
        meshes=[
            pb.Mesh(names=mesh.names, shape=mesh.shape)
            for mesh in sorted(meshes, key=lambda m: (m.names, m.shape))
        ],
        peer_groups=[
            pb.PeerGroup(kind=group.kind.value, ranks=group.ranks)
            for group in topology.peer_groups(addresses)
        ],
    )


def address_of(told: Mapping[str, Any]) -> dict[str, int]:
    """The axes that the shim knows; what is not a small whole number is left out."""
    axes = told.get("coordinates", told)
    if not isinstance(axes, Mapping):
        return {}
    return {axis: axes[axis] for axis in topology.AXES if _is_small(axes.get(axis))}


def mesh_of(told: Mapping[str, Any]) -> topology.Mesh | None:
    """The rank's device mesh, None where it has none."""
    mesh = told.get("mesh")
    if not isinstance(mesh, Mapping):
        return None
    names, shape = mesh.get("names"), mesh.get("shape")
    if not isinstance(names, list) or not isinstance(shape, list) or len(shape) > MAX_MESH_DIMENSIONS:
        return None
    if not shape or not all(_is_small(size) for size in shape):
        return None
    return topology.Mesh(tuple(str(name)[:64] for name in names[: len(shape)]), tuple(shape))


def _is_small(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _warnings(
    addresses: Mapping[int, topology.Address], meshes: Iterable[topology.Mesh], world_size: int
) -> tuple[str, ...]:
    """A job that tells no layout at all has nothing odd about it."""
    return topology.warnings(addresses, meshes, world_size) if any(addresses.values()) else ()


def _place(rank: RankReport, node: str, address: topology.Address) -> pb.RankPlace:
    return pb.RankPlace(
        rank=rank.rank, node=node, local_rank=rank.local_rank, device=rank.device, coordinates=address
    )


def _groups(ranks: Iterable[RankReport]) -> list[pb.ProcessGroup]:
    """Every group that some rank is in, once, in the order of first mention."""
    seen: dict[int, GroupView] = {}
    for rank in ranks:
        for group in rank.groups:
            if group.group not in seen or seen[group.group].members is None:
                seen[group.group] = group
    return [
        pb.ProcessGroup(
            id=format(each.group, "x"),
            name=each.name,
            description=each.description,
            backend=each.backend,
            ranks=list(each.members or ()),
        )
        for each in seen.values()
    ]
