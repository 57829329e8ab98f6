"""The parallel layout: where each rank stands, and who its peers are (SCOUT §1).

A rank's address is r = (d, s, t, p, c, e): data replica, FSDP shard, tensor, pipeline, context and expert
coordinate. Peers do the same work on the same parameters, so they can be compared:

- *Replicated* peers, where data replicas exist: equal s, t, p, c, e; only d varies.
- *Shard* peers, where d has one value: equal t, p, c, e; s varies. They hold different shards, and the same
  parameters once these are gathered.

A group of fewer than three attributes nothing: one has nobody to compare with, two can disagree but not be
judged. An axis that a rank does not name has one value there, 0; a rank that names no axis is in no group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

AXES: Final = ("d", "s", "t", "p", "c", "e")
SMALLEST_GROUP: Final = 3

Address = Mapping[str, int]


class PeerKind(str, Enum):
    REPLICATED = "REPLICATED"
    SHARD = "SHARD"


@dataclass(frozen=True, slots=True)
class PeerGroup:
    """Ranks in the order of the coordinate that varies."""

    kind: PeerKind
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mesh:
    """A device mesh as its members tell it: dimension names and sizes, outermost first."""

    names: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size


def degrees(addresses: Mapping[int, Address]) -> dict[str, int]:
    """How many values each axis takes; axes that nobody names are left out."""
    values: dict[str, set[int]] = defaultdict(set)
    for address in addresses.values():
        for axis, value in address.items():
            values[axis].add(value)
    return {axis: len(values[axis]) for axis in AXES if axis in values}


def peer_groups(addresses: Mapping[int, Address]) -> tuple[PeerGroup, ...]:
    """The peer groups of all ranks that name an axis, by their lowest rank."""
    known = {rank: address for rank, address in addresses.items() if address}
    replicated = degrees(known).get("d", 1) > 1
    kind, varying = (PeerKind.REPLICATED, "d") if replicated else (PeerKind.SHARD, "s")
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, address in known.items():
        groups[tuple(address.get(axis, 0) for axis in AXES if axis != varying)].append(rank)
    found = [
        PeerGroup(kind, tuple(sorted(ranks, key=lambda r: (known[r].get(varying, 0), r))))
        for ranks in groups.values()
    ]
    return tuple(sorted(found, key=lambda group: min(group.ranks)))


def collisions(addresses: Mapping[int, Address]) -> tuple[tuple[int, ...], ...]:
    """Ranks that claim one address, which only one of them can have."""
    claims: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, address in sorted(addresses.items()):
        if address:
            claims[tuple(address.get(axis, 0) for axis in AXES)].append(rank)
    return tuple(tuple(ranks) for ranks in claims.values() if len(ranks) > 1)


def warnings(addresses: Mapping[int, Address], meshes: Iterable[Mesh], world_size: int) -> tuple[str, ...]:
    """What makes comparison between peers impossible or doubtful, in words.

    ``addresses`` has an entry for every rank that is known here, empty where it names no axis.
    """
    found = [
        f"{_ranks(ranks)} claim the same coordinates {_address(addresses[ranks[0]])}"
        for ranks in collisions(addresses)
    ]
    found += [
        f"mesh {_mesh(mesh)} has {mesh.size} ranks, the job has {world_size}"
        for mesh in sorted(set(meshes), key=lambda mesh: (mesh.names, mesh.shape))
        if mesh.size != world_size
    ]
    if nameless := sorted(rank for rank, address in addresses.items() if not address):
        found.append(f"coordinates of {_ranks(nameless)} are unknown, nobody is their peer")
    small = [group.ranks for group in peer_groups(addresses) if len(group.ranks) < SMALLEST_GROUP]
    if small:
        example = ", ".join(_ranks(ranks) for ranks in small[:2]) + (" …" if len(small) > 2 else "")
        found.append(
            f"{len(small)} peer groups have fewer than {SMALLEST_GROUP} ranks ({example}): "
            "comparing peers cannot name a rank there"
        )
    return tuple(found)


def _ranks(ranks: Iterable[int]) -> str:
    listed = list(ranks)
    text = ", ".join(map(str, listed[:8])) + (f" and {len(listed) - 8} more" if len(listed) > 8 else "")
    return f"rank {text}" if len(listed) == 1 else f"ranks {text}"


def _address(address: Address) -> str:
    return "(" + ", ".join(f"{axis}={address[axis]}" for axis in AXES if axis in address) + ")"


def _mesh(mesh: Mesh) -> str:
    named = [f"{name}={size}" for name, size in zip(mesh.names, mesh.shape, strict=False)]
    return " × ".join(named or map(str, mesh.shape))
