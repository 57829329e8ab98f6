"""The replicated map of evidence: node → newest report of that node. A state-based CRDT (design §4).

Merge is, per node, the newest incarnation and within it the maximum of version and of beat, so order,
duplicates and loss are harmless, and any two agents that exchanged everything hold equal maps.
The map also remembers, on the local clock, when each node's beat last grew: that is all it says about life.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from scoutd.agent.messages import Blob, Mark


@dataclass(slots=True)
class Entry:
    """``data`` is None while only the mark is known; ``held`` is the version of ``data``, which may be older
    than the mark's. ``reported_ns``: when the report was true, on the local clock. ``heard_ns``: when a
    higher beat was last learned."""

    mark: Mark
    data: bytes | None = None
    held: int = 0
    reported_ns: int = 0
    heard_ns: int = 0


class Replica:
    """The map as one agent (``me``) holds it. ``conflict`` names another address that claims to be me."""

    def __init__(self, me: str, address: str, incarnation: int) -> None:
        self.me = me
        self.conflict = ""
        self.entries: dict[str, Entry] = {me: Entry(Mark(me, address, incarnation, 0, 0))}

    @property
    def mine(self) -> Mark:
        return self.entries[self.me].mark

    def publish(self, data: bytes, now_ns: int) -> None:
        """A new version of this node's own report."""
        entry = self.entries[self.me]
        entry.mark = replace(entry.mark, version=entry.mark.version + 1, beat=entry.mark.beat + 1)
        entry.data, entry.held = data, entry.mark.version
        entry.reported_ns = entry.heard_ns = now_ns

    def beat(self, now_ns: int) -> None:
        """This node is alive and has published nothing newer."""
        entry = self.entries[self.me]
        entry.mark = replace(entry.mark, beat=entry.mark.beat + 1)
        entry.heard_ns = now_ns

    def move(self, address: str) -> None:
        """This node listens elsewhere from now on."""
        entry = self.entries[self.me]
        entry.mark = replace(entry.mark, address=address)

    def merge_marks(self, marks: Iterable[Mark], now_ns: int) -> None:
        for mark in marks:
            self._merge_mark(mark, now_ns)

    def _merge_mark(self, mark: Mark, now_ns: int) -> Entry | None:
        if mark.node == self.me:
            self._outdo(mark)
            return None
        entry = self.entries.get(mark.node)
        if entry is None or mark.incarnation > entry.mark.incarnation:
            entry = self.entries[mark.node] = Entry(mark, heard_ns=now_ns)
        elif mark.incarnation == entry.mark.incarnation:
            old = entry.mark
            if mark.beat > old.beat:
                entry.heard_ns = now_ns
                address = mark.address
            else:
                address = old.address
            entry.mark = Mark(
                old.node, address, old.incarnation, max(old.version, mark.version), max(old.beat, mark.beat)
            )
        return entry

    def _outdo(self, mark: Mark) -> None:
        """Who sees a higher incarnation of its own adopts it + 1: an earlier life lost its counter.

        Another address under my name whose beats are not mine is a second agent, not an earlier life.
        """
        mine = self.mine
        if mark.address != mine.address and mark.incarnation >= mine.incarnation:
            self.conflict = mark.address
        ahead = mark.incarnation == mine.incarnation and (
            mark.version > mine.version or mark.beat > mine.beat
        )
        if mark.incarnation > mine.incarnation or ahead:
            entry = self.entries[self.me]
            entry.mark = replace(
                mine, incarnation=mark.incarnation + 1, version=mine.version + 1, beat=mine.beat + 1
            )
            entry.held = entry.mark.version if entry.data is not None else 0

    def merge_blobs(self, blobs: Iterable[Blob], now_ns: int) -> int:
        """Takes the reports that are newer than what is held; returns how many."""
        taken = 0
        for blob in blobs:
            entry = self._merge_mark(blob.mark, now_ns)
            if entry is None or blob.mark.incarnation != entry.mark.incarnation:
                continue
            if blob.mark.held > entry.held:
                entry.data, entry.held = blob.data, blob.mark.held
                entry.reported_ns = now_ns - max(0, blob.age_ns)
                taken += 1
        return taken

    def marks(self) -> tuple[Mark, ...]:
        """What is known of every node, with what this agent can hand over."""
        return tuple(self.mark_of(node) for node in self.entries)

    def mark_of(self, node: str) -> Mark:
        entry = self.entries[node]
        return replace(entry.mark, held=entry.held)

    def difference(self, marks: Iterable[Mark]) -> tuple[list[str], list[str], list[Mark]]:
        """Against a peer's marks: (nodes whose report it lacks, whose report I lack, my other marks)."""
        theirs = {mark.node: mark for mark in marks}
        lacks: list[str] = []
        newer: list[Mark] = []
        for node, entry in self.entries.items():
            known = theirs.get(node)
            mine = entry.mark
            if known is None or (mine.incarnation, mine.version, mine.beat) != (
                known.incarnation,
                known.version,
                known.beat,
            ):
                newer.append(self.mark_of(node))
            held = (known.incarnation, known.held) if known is not None else (0, 0)
            if entry.data is not None and (mine.incarnation, entry.held) > held:
                lacks.append(node)
        wanted = [node for node, mark in theirs.items() if self._want(mark)]
        return lacks, wanted, newer

    def _want(self, mark: Mark) -> bool:
        if mark.node == self.me or not mark.held:
            return False
        entry = self.entries.get(mark.node)
        return entry is None or (mark.incarnation, mark.held) > (entry.mark.incarnation, entry.held)

    def blobs(self, nodes: Iterable[str], now_ns: int) -> tuple[Blob, ...]:
        """Reports of these nodes, as far as they are held."""
        found: list[Blob] = []
        for node in nodes:
            entry = self.entries.get(node)
            if entry is not None and entry.data is not None:
                found.append(Blob(self.mark_of(node), entry.data, now_ns - entry.reported_ns))
        return tuple(found)

    def reports(self) -> Mapping[str, tuple[bytes, tuple[int, int], int]]:
        """Per node: the report, its (incarnation, version), and when it was true on the local clock."""
        return {
            node: (entry.data, (entry.mark.incarnation, entry.held), entry.reported_ns)
            for node, entry in self.entries.items()
            if entry.data is not None
        }

    def current(self, node: str) -> bool:
        """The report that is held is the newest that anybody mentioned."""
        entry = self.entries[node]
        return entry.data is not None and entry.held == entry.mark.version

    def digest(self) -> str:
        """Equal digests mean equal evidence: 16 hexadecimal digits over all (node, incarnation, version)."""
        text = "\n".join(f"{node} {e.mark.incarnation} {e.held}" for node, e in sorted(self.entries.items()))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
