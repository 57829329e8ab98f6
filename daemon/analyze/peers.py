"""Who stopped by itself, told by a peer in the same position.

A dump does not say whether a host waits. A rank with unfinished calls may sit in one of them; but if a member
of its group has *the same* calls unfinished and enqueued more, those calls did not stop it, so they did not
stop this rank either: whatever holds its host is its own. The same call is the same sequence of the same
group, or the same transfer by position and count in a pipeline of the same kind (replicas of a stage count
alike). Ranks at the same place of their pipelines run the same program, so among them the same sequence of a
group of the same kind and size is the same call, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scoutd.daemon.analyze.dump import Dump, Entry
from scoutd.daemon.analyze.membership import Layout

MOST_PEERS: Final = 64
"""Members of a group that a rank is compared with."""

Key = tuple[str, str, int]


def went_on(layout: Layout, dumps: Mapping[int, Dump]) -> dict[int, int]:
    """Ranks that were not stopped by their unfinished calls, each with a peer that shows it."""
    kinds = _kinds(layout)
    exact = {rank: _unfinished(dump, {}) for rank, dump in dumps.items()}
    alike = {rank: _unfinished(dump, kinds) for rank, dump in dumps.items()}
    stages = _stages(layout)
    found: dict[int, int] = {}
    for group in layout.groups:
        if group.transfers or group.members is None:
            continue
        ahead = sorted(group.progress, key=lambda r: -group.progress[r].enqueued)[:MOST_PEERS]
        for rank, progress in group.progress.items():
            if not exact[rank]:
                continue
            for peer in ahead:
                if group.progress[peer].enqueued <= progress.enqueued:
                    break
                replica = stages.get(rank) == stages.get(peer) and alike[rank] <= alike[peer]
                if exact[rank] <= exact[peer] or replica:
                    found.setdefault(rank, peer)
                    break
    return found


def _kinds(layout: Layout) -> dict[str, str]:
    """Group name → what groups of one kind and size share; those without a description stand alone."""
    return {
        group.name: f"{group.description} of {len(group.members)}"
        for group in layout.groups
        if group.members is not None and group.description not in ("", "undefined")
    }


def _stages(layout: Layout) -> dict[int, frozenset[tuple[str, int]]]:
    """Where each rank stands in its pipelines; a rank that is in none is not here."""
    found: dict[int, set[tuple[str, int]]] = {}
    for group in layout.groups:
        if group.transfers and group.members is not None:
            for index, rank in enumerate(group.members):
                found.setdefault(rank, set()).add((group.description, index))
    return {rank: frozenset(places) for rank, places in found.items()}


def _unfinished(dump: Dump, kinds: Mapping[str, str]) -> frozenset[Key]:
    return frozenset(_key(e, kinds) for e in dump.entries if not e.retired)


def _key(entry: Entry, kinds: Mapping[str, str]) -> Key:
    if entry.p2p:
        return entry.description or entry.group, entry.operation, entry.op_id
    return kinds.get(entry.group, entry.group), "", entry.sequence
