"""Unfinished sends and receives (P2P), numbered per pair so that both ends can be compared.

The recorder numbers all transfers of a group together, each member its own. Between two ranks the order is
the same at both ends, so calls are matched from the first unfinished one: the k-th unfinished receive from a
rank waits for its k-th unfinished send. A send that finished before its receive (a small one may) would shift
that count; where both rings reach back to the start, finished calls are counted too, and nothing can shift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scoutd.agent.evidence import Call, CallKind, CallState, Fingerprint, Source
from scoutd.daemon.analyze.dump import Dump, Entry
from scoutd.daemon.analyze.membership import Group, transfer
from scoutd.daemon.analyze.names import DTYPES, shape

KINDS = {"send": CallKind.P2P_SEND, "recv": CallKind.P2P_RECV}


def transfers(rank: int, group: Group, dumps: Mapping[int, Dump], newest_ns: int) -> list[Call]:
    """The unfinished transfers of a rank in this group, oldest first; ages are from its newest entry."""
    found: list[Call] = []
    counts: dict[tuple[str, int], int] = {}
    for entry in _entries(dumps[rank], group):
        told = transfer(entry, group.members)
        if told is None:
            continue
        kind, peer = told
        exact = dumps[rank].whole and peer in dumps and dumps[peer].whole
        if entry.retired and not exact:
            continue
        counts[told] = counts.get(told, 0) + 1
        if entry.retired:
            found = [
                c for c in found if c.state is CallState.PENDING or (c.kind, c.peer) != (KINDS[kind], peer)
            ]
        found.append(_call(entry, group, KINDS[kind], peer, counts[told], newest_ns))
    return found


def _entries(dump: Dump, group: Group) -> Iterable[Entry]:
    return (e for e in dump.entries if e.p2p and e.group == group.name)


def _call(entry: Entry, group: Group, kind: CallKind, peer: int, sequence: int, newest_ns: int) -> Call:
    return Call(
        group=group.identity,
        sequence=sequence,
        kind=kind,
        state=CallState.DONE if entry.retired else CallState.PENDING,
        fingerprint=Fingerprint(entry.operation.split()[0], DTYPES.get(entry.dtype, entry.dtype), None, None),
        shape=shape([entry]),
        age_ns=max(0, newest_ns - entry.created_ns),
        waiting=not entry.retired,
        source=Source.RECORDER,
        peer=peer,
        tag=0,
    )
