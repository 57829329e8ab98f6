"""Which process groups the job had, who was in them, and how far each member had come.

A dump keys its status by a number that its process counted; the same group has another number elsewhere. The
number leads to a group's name through the entries, and, where a group has no entry, through the order of
creation: numbers and names of a process's groups grow together, so between two known pairs as many numbers
as names are the same groups.

Members come from the configuration. Where that does not name them, they are the ranks whose dumps know the
name, and that is checked: a gathered tensor is as many times larger as the group has members, and a transfer
names members by position. What does not fit is not believed, and the group is not judged.

A group with transfers (a pipeline) counts them in its status, each member its own; only the number of
collectives that its entries carry can be compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from scoutd.daemon.analyze.dump import Counters, Dump, Entry

TRANSFER: Final = re.compile(r"^(?P<kind>send|recv) (?P<me>\d+)(?:->|<-)(?P<peer>\d+)$")
WORLD_NAMES: Final = frozenset({"default_pg"})
GATHERS: Final = frozenset(
    {"_all_gather_base", "_allgather_base", "allgather_base", "all_gather_into_tensor"}
)
SCATTERS: Final = frozenset({"_reduce_scatter_base", "reduce_scatter_base", "reduce_scatter_tensor"})


@dataclass(frozen=True, slots=True)
class Progress:
    """``enqueued`` and ``retired`` are the highest sequences of collectives, ``started`` too where known."""

    enqueued: int
    retired: int
    started: int | None = None


@dataclass
class Group:
    """``members`` is None where they are unknown. ``transfers``: some member made P2P calls in it.
    ``progress`` lacks a member whose dump does not tell."""

    name: str
    description: str
    members: tuple[int, ...] | None
    transfers: bool = False
    progress: dict[int, Progress] = field(default_factory=dict)

    @property
    def identity(self) -> int:
        """The same 64 bits for equal names and members."""
        text = f"{self.name}\0{self.members}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") or 1

    def judged(self, dumped: Collection[int]) -> bool:
        """Of every member among ``dumped`` it is known how far it had come, so it can be said who is late."""
        return self.members is not None and all(r in self.progress for r in self.members if r in dumped)


@dataclass(frozen=True)
class Layout:
    """``groups`` of the job; ``of[rank][name]`` is the group that this rank knows under a name."""

    world: tuple[int, ...]
    groups: tuple[Group, ...]
    of: Mapping[int, Mapping[str, Group]]
    warnings: tuple[str, ...]


def reconstruct(dumps: Mapping[int, Dump], unread: Iterable[int] = ()) -> Layout:
    """The layout that these dumps, by rank, tell together. ``unread``: ranks whose file was no use."""
    warnings: list[str] = []
    groups: dict[tuple[str, tuple[int, ...] | None], Group] = {}
    of: dict[int, dict[str, Group]] = {rank: {} for rank in dumps}
    keys = {rank: {name: key for key, name in names_by_key(dump).items()} for rank, dump in dumps.items()}
    for rank, dump in dumps.items():
        for name in dict.fromkeys([*dump.groups, *(e.group for e in dump.entries), *keys[rank]]):
            config = dump.groups.get(name)
            ranks = config.ranks if config is not None else None
            key = (name, ranks if ranks is not None else _told_elsewhere(name, rank, dumps))
            group = groups.setdefault(key, Group(name, "", key[1]))
            group.description = group.description or _description(name, dump)
            of[rank][name] = group
    _infer_members(groups.values(), of, dumps, warnings)
    for group in groups.values():
        _count(group, of, dumps, keys, warnings)
    world = sorted({*dumps, *(r for g in groups.values() for r in g.members or ())})
    if not any(g.members for g in groups.values()):
        world = sorted({*world, *unread})
    return Layout(tuple(world), tuple(groups.values()), of, tuple(warnings))


def names_by_key(dump: Dump) -> dict[str, str]:
    """Status key → group name, as far as entries and the order of creation tell."""
    known = {e.status_key: e.group for e in dump.entries if e.status_key in dump.counters}
    keys = sorted((k for k in dump.counters if k.isdigit()), key=int)
    names = sorted((n for n in dump.groups if n.isdigit()), key=int)
    if len(keys) != len(dump.counters) or len(names) != len(dump.groups):
        return known
    anchors = sorted((keys.index(k), names.index(n)) for k, n in known.items() if k in keys and n in names)
    anchors = [(-1, -1), *anchors, (len(keys), len(names))]
    if any(n1 <= n0 for (_, n0), (_, n1) in pairwise(anchors)):
        return known  # the numbers of this process did not grow with the names
    for (k0, n0), (k1, n1) in pairwise(anchors):
        if k1 - k0 == n1 - n0:
            known.update(zip(keys[k0 + 1 : k1], names[n0 + 1 : n1], strict=True))
    return known


def transfer(entry: Entry, members: Sequence[int] | None) -> tuple[str, int] | None:
    """("send" or "recv", global rank of the peer) of a P2P entry; None where the peer cannot be told."""
    found = TRANSFER.match(entry.operation)
    if found is None or members is None or int(found["peer"]) >= len(members):
        return None
    return found["kind"], members[int(found["peer"])]


def _description(name: str, dump: Dump) -> str:
    config = dump.groups.get(name)
    told = config.description if config is not None else ""
    return told or next((e.description for e in dump.entries if e.group == name and e.description), "")


def _told_elsewhere(name: str, rank: int, dumps: Mapping[int, Dump]) -> tuple[int, ...] | None:
    """The members that another rank's configuration gives a group of this name with this rank in it."""
    configs = (d.groups.get(name) for d in dumps.values())
    return next((c.ranks for c in configs if c is not None and c.ranks is not None and rank in c.ranks), None)


def _infer_members(
    groups: Iterable[Group],
    of: Mapping[int, Mapping[str, Group]],
    dumps: Mapping[int, Dump],
    warnings: list[str],
) -> None:
    for group in [g for g in groups if g.members is None]:
        ranks = tuple(sorted(r for r, names in of.items() if names.get(group.name) is group))
        entries = [e for r in ranks for e in dumps[r].entries if e.group == group.name]
        sizes = {size for e in entries if (size := _group_size(e)) is not None}
        beyond = any(int(m["me"]) >= len(ranks) or int(m["peer"]) >= len(ranks) for m in _transfers(entries))
        if (sizes and sizes != {len(ranks)}) or beyond:
            told = f"{min(sizes)} members" if sizes else "more members"
            warnings.append(
                f"group {group.name} is known to {len(ranks)} ranks but has {told}: it is not judged"
            )
        else:
            group.members = ranks


def _transfers(entries: Iterable[Entry]) -> Iterable[re.Match[str]]:
    return (found for e in entries if (found := TRANSFER.match(e.operation)))


def _group_size(entry: Entry) -> int | None:
    """How many members a gathering or scattering collective must have had."""
    into, out = _numel(entry.sizes), _numel(entry.out_sizes)
    if not into or not out:
        return None
    if entry.operation in GATHERS and out % into == 0:
        return out // into
    return into // out if entry.operation in SCATTERS and into % out == 0 else None


def _numel(sizes: Iterable[Iterable[int]]) -> int:
    total = 0
    for shape in sizes:
        product = 1
        for n in shape:
            product *= n
        total += product
    return total


def _count(
    group: Group,
    of: Mapping[int, Mapping[str, Group]],
    dumps: Mapping[int, Dump],
    keys: Mapping[int, Mapping[str, str]],
    warnings: list[str],
) -> None:
    """How far each member had come; a group in which a dump does not tell is not judged."""
    mine = {r: dumps[r] for r, names in of.items() if names.get(group.name) is group}
    entries = {r: [e for e in dump.entries if e.group == group.name] for r, dump in mine.items()}
    group.transfers = any(e.p2p for found in entries.values() for e in found)
    for rank, dump in mine.items():
        key = keys[rank].get(group.name)
        counters = None if group.transfers or key is None else dump.counters[key]
        progress = _progress(counters, entries[rank], dump.whole)
        if progress is not None:
            group.progress[rank] = progress
    silent = [r for r in group.members or () if r in mine and r not in group.progress]
    if silent and any(not e.retired and not e.p2p for found in entries.values() for e in found):
        told = f"the dumps of {len(silent)} members do not tell how far they had come"
        warnings.append(f"group {group.name}: {told}; it is not judged")


def _progress(counters: Counters | None, entries: Sequence[Entry], whole: bool) -> Progress | None:
    """From the status counters and the group's entries; None where neither tells."""
    last = max((e.sequence for e in entries), default=0)
    pending = min((e.sequence for e in entries if not e.retired and not e.p2p), default=None)
    if counters is None:
        if not entries and not whole:
            return None
        return Progress(last, last if pending is None else pending - 1)
    retired = counters.completed
    if pending is not None:
        retired = min(retired, pending - 1)
    elif any(e.backend == "gloo" for e in entries):
        retired = max(retired, last)  # Gloo's counter is that of the last to finish, not the highest
    return Progress(max(counters.enqueued, last), retired, counters.started)
