"""The wire form of a job's parallel layout: places, meshes, process groups, peers, and what is odd.

An agent sees the ranks of its node; of the others it asks their agents when a person asks it, each for its
*part* of at most ``PART_BYTES``, ``WHOLE_BYTES`` together. Peers and what is odd follow from the whole. Nodes
that do not tell are named. Coordinates and meshes come from trainers: what is not of the expected form is
left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from scoutd.agent import topology
from scoutd.agent.evidence import GroupView, RankReport
from scoutd.daemon.jobs import Job
from scoutd.proto.v1 import query_pb2 as pb

MAX_MESH_DIMENSIONS: Final = 8
PART_BYTES: Final = 64 << 10
WHOLE_BYTES: Final = 12 << 20
"""A little less than the server sends in one message."""


def encode_topology(job: Job) -> pb.JobTopology:
    """What is seen here: where each rank is, which process groups exist, who can be compared with whom."""
    return whole(encode_part(job), {})


def encode_part(job: Job) -> pb.JobTopology:
    """What this agent sees, without what follows from the whole."""
    report = job.observation.report
    told = job.observation.topology
    meshes = {mesh for each in told.values() if (mesh := mesh_of(each)) is not None}
    places = [_place(rank, report.node, address_of(told.get(rank.rank, {}))) for rank in report.ranks]
    return pb.JobTopology(
        job=job.name,
        generation=job.generation,
        world_size=report.world_size,
        ranks=places,
        groups=_groups(report.ranks),
        warnings=job.observation.warnings,
        meshes=_meshes(meshes),
    )


def part_for_others(job: Job) -> bytes:
    """The part in its wire form, without members of groups and then without groups where it is too large;
    empty where even that does not help."""
    part = encode_part(job)
    if part.ByteSize() > PART_BYTES:
        for group in part.groups:
            group.ClearField("ranks")
    if part.ByteSize() > PART_BYTES:
        part.ClearField("groups")
    return part.SerializeToString() if part.ByteSize() <= PART_BYTES else b""


def whole(mine: pb.JobTopology, others: Mapping[str, bytes | None]) -> pb.JobTopology:
    """The layout of the job as far as its agents have told; ``others`` by node, None where one has not."""
    found = pb.JobTopology()
    found.CopyFrom(mine)
    ranks = {place.rank: place for place in mine.ranks}
    groups = {group.id: group for group in mine.groups}
    meshes = {_mesh(each) for each in mine.meshes}
    size = mine.ByteSize()
    for node, data in sorted(others.items()):
        part = _read(data, mine) if data and size + len(data) <= WHOLE_BYTES else None
        if part is None:
            found.missing.append(node)
            continue
        size += len(data or b"")
        for place in part.ranks:
            ranks.setdefault(place.rank, place)
        for group in part.groups:
            if group.id not in groups or not groups[group.id].ranks:
                groups[group.id] = group
        meshes |= {_mesh(each) for each in part.meshes if 0 < len(each.shape) <= MAX_MESH_DIMENSIONS}
        found.warnings.extend(part.warnings)
    _fill(found, ranks, groups.values(), meshes)
    return found


def _read(data: bytes, mine: pb.JobTopology) -> pb.JobTopology | None:
    """Another agent's part; None where it is none of this job as it runs now."""
    try:
        part = pb.JobTopology.FromString(data)
    except DecodeError:
        return None
    return part if (part.job, part.generation) == (mine.job, mine.generation) else None


def _fill(
    found: pb.JobTopology,
    ranks: Mapping[int, pb.RankPlace],
    groups: Iterable[pb.ProcessGroup],
    meshes: set[topology.Mesh],
) -> None:
    """These are the ranks, groups and meshes; what follows from them is added."""
    places = [place for _, place in sorted(ranks.items())]
    addresses = {place.rank: dict(place.coordinates) for place in places}
    found.ClearField("ranks")
    found.ClearField("groups")
    found.ClearField("meshes")
    found.ranks.extend(places)
    found.groups.extend(groups)
    found.meshes.extend(_meshes(meshes))
    found.warnings.extend(_warnings(addresses, meshes, found.world_size))
    found.peer_groups.extend(
        pb.PeerGroup(kind=group.kind.value, ranks=group.ranks) for group in topology.peer_groups(addresses)
    )


def _meshes(meshes: Iterable[topology.Mesh]) -> list[pb.Mesh]:
    ordered = sorted(meshes, key=lambda m: (m.names, m.shape))
    return [pb.Mesh(names=mesh.names, shape=mesh.shape) for mesh in ordered]


def _mesh(told: pb.Mesh) -> topology.Mesh:
    return topology.Mesh(tuple(told.names), tuple(told.shape))


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
