"""Who stopped by itself, told by a peer in the same position.

A dump does not say whether a host waits. A rank with unfinished calls may sit in one of them; but if a member
of its group has *the same* calls unfinished and enqueued more, those calls did not stop it, so they did not
stop this rank either: whatever holds its host is its own. The same call is the same sequence of the same
group, or the same transfer by position and count in a pipeline of the same kind (replicas of a stage count
alike).
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
    unfinished = {rank: _unfinished(dump) for rank, dump in dumps.items()}
    found: dict[int, int] = {}
    for group in layout.groups:
        if group.transfers or group.members is None:
            continue
        ahead = sorted(group.progress, key=lambda r: -group.progress[r].enqueued)[:MOST_PEERS]
        for rank, progress in group.progress.items():
            mine = unfinished[rank]
            further = (r for r in ahead if group.progress[r].enqueued > progress.enqueued)
            peer = next((r for r in further if mine <= unfinished[r]), None) if mine else None
            if peer is not None:
                found.setdefault(rank, peer)
    return found


def _unfinished(dump: Dump) -> frozenset[Key]:
    return frozenset(_key(e) for e in dump.entries if not e.retired)


def _key(entry: Entry) -> Key:
    if entry.p2p:
        return entry.description or entry.group, entry.operation, entry.op_id
    return entry.group, "", entry.sequence
