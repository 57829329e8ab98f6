"""The replicated map of evidence: node → newest report of that node. A state-based CRDT (design §4).

Merge is, per node, the newest incarnation and within it the maximum of version and of beat, so order,
duplicates and loss are harmless, and any two agents that exchanged everything hold equal maps.
The map also remembers, on the local clock, when each node's beat last grew: that is all it says about life.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scoutd.agent.messages import LAST_BEAT, Blob, Mark

MOST: Final = (1 << 62) - 1
"""A larger incarnation or age is nonsense; sums of what is smaller still fit the wire."""

MOST_NODES: Final = 1 << 15
SPARE_NODES: Final = 16


@dataclass(slots=True)
class Entry:
    """``data`` is None while only the mark is known; ``mark.held`` is the version of ``data``, which may be
    older than the mark's, 0 for none. ``reported_ns``: when the report was true, on the local clock.
    ``heard_ns``: when a higher beat was last learned."""

    mark: Mark
    data: bytes | None = None
    reported_ns: int = 0
    heard_ns: int = 0


class Replica:
    """The map as one agent (``me``) holds it. ``conflict`` names another address that claims to be me.
    ``news`` grows whenever a version becomes known or held that was not: beats are no news."""

    def __init__(self, me: str, address: str, incarnation: int) -> None:
        self.me = me
        self.conflict = ""
        self.news = 0
        self._some_left = False
        self._others: list[str] = []
        self._most = MOST_NODES
        self.entries: dict[str, Entry] = {me: Entry(Mark(me, address, incarnation, 0, 0))}

    @property
    def mine(self) -> Mark:
        return self.entries[self.me].mark

    def expect(self, ranks: int) -> None:
        """The job has so many ranks, 0 if that is unknown, and a node has at least one. A node that was
        replaced may have another name; many more names than that are invented, and are not kept."""
        self._most = min(2 * ranks + SPARE_NODES, MOST_NODES) if ranks else MOST_NODES

    def begin(self, at: int) -> None:
        """This life counts from ``at`` on, a random number. An agent that lost its incarnation may have
        published as many reports as its earlier life: equal marks of different reports would go unnoticed."""
        entry = self.entries[self.me]
        entry.mark = entry.mark._replace(version=at, beat=at)

    def publish(self, data: bytes, now_ns: int) -> None:
        """A new version of this node's own report."""
        entry = self.entries[self.me]
        version = entry.mark.version + 1
        entry.mark = entry.mark._replace(version=version, beat=entry.mark.beat + 1, held=version)
        entry.data = data
        self.news += 1
        entry.reported_ns = entry.heard_ns = now_ns

    def retract(self, now_ns: int) -> None:
        """This node's last report holds no longer, and no newer one is published: to others it is stale."""
        entry = self.entries[self.me]
        entry.mark = entry.mark._replace(version=entry.mark.version + 1, beat=entry.mark.beat + 1)
        entry.heard_ns = now_ns
        self.news += 1

    def beat(self, now_ns: int) -> None:
        """This node is alive and has published nothing newer."""
        entry = self.entries[self.me]
        entry.mark = entry.mark._replace(beat=entry.mark.beat + 1)
        entry.heard_ns = now_ns

    def depart(self, now_ns: int) -> None:
        """This node's part in the job is over, and what it has published is final."""
        entry = self.entries[self.me]
        entry.mark = entry.mark._replace(beat=LAST_BEAT)
        self._some_left = True
        entry.heard_ns = now_ns

    def present(self) -> Collection[str]:
        """Nodes that have not taken their leave, this one included; a look that holds until something is
        merged."""
        if not self._some_left:
            return self.entries.keys()
        return {node: None for node, entry in self.entries.items() if entry.mark.beat < LAST_BEAT}.keys()

    @property
    def others(self) -> list[str]:
        """The same without this node. Not to be changed: while nobody comes or leaves it is one list."""
        if self._some_left or len(self._others) != len(self.entries) - 1:
            self._others = [node for node in self.present() if node != self.me]
        return self._others

    @property
    def alone(self) -> bool:
        """Nobody else is known, or all others have taken their leave."""
        return not self.others

    def move(self, address: str) -> None:
        """This node listens elsewhere from now on."""
        entry = self.entries[self.me]
        entry.mark = entry.mark._replace(address=address)

    def merge_marks(self, marks: Iterable[Mark], now_ns: int) -> list[str]:
        """The marks are known; returns the nodes whose beat grew by that."""
        entries, me, grown = self.entries, self.me, []
        for mark in marks:
            node, _, incarnation, version, beat, _ = mark
            entry = entries.get(node)
            if entry is not None and node != me:
                old = entry.mark
                if incarnation < old.incarnation or (
                    incarnation == old.incarnation and version <= old.version and beat <= old.beat
                ):
                    continue
            if self._merge_mark(mark, now_ns):
                grown.append(node)
        return grown

    def _merge_mark(self, mark: Mark, now_ns: int) -> bool:
        """True if the node's beat grew."""
        if mark.node == self.me:
            self._outdo(mark)
            return False
        self._some_left = self._some_left or mark.beat >= LAST_BEAT
        entry = self.entries.get(mark.node)
        if entry is None and len(self.entries) >= self._most:
            return False
        if entry is None or mark.incarnation > entry.mark.incarnation:
            self.entries[mark.node] = Entry(mark._replace(held=0), heard_ns=now_ns)
            self.news += 1
            return True
        old = entry.mark
        if mark.incarnation < old.incarnation:
            return False
        grew = mark.beat > old.beat
        if grew:
            entry.heard_ns = now_ns
            old = old._replace(address=mark.address, beat=mark.beat)
        if mark.version > old.version:
            self.news += 1
            old = old._replace(version=mark.version)
        entry.mark = old
        return grew

    def _outdo(self, mark: Mark) -> None:
        """Who sees a higher incarnation of its own adopts it + 1: an earlier life lost its counter.

        Another address under my name whose beats are not mine is a second agent, not an earlier life.
        """
        mine = self.mine
        if mark.address != mine.address and mark.incarnation >= mine.incarnation:
            self.conflict = mark.address
        ahead = mark.incarnation == mine.incarnation and (
            mark.version > mine.version or mark.beat > mine.beat or mark.held > mine.held
        )
        if mark.incarnation > mine.incarnation or ahead:
            entry = self.entries[self.me]
            version = mine.version + 1
            entry.mark = mine._replace(
                incarnation=min(mark.incarnation + 1, MOST),
                version=version,
                beat=mine.beat + 1,
                held=version if entry.data is not None else 0,
            )

    def merge_blobs(self, blobs: Iterable[Blob], now_ns: int) -> int:
        """Takes the reports that are newer than what is held; returns how many."""
        taken = 0
        for mark, data, age_ns in blobs:
            self._merge_mark(mark, now_ns)
            entry = self.entries.get(mark.node)
            if entry is None:
                continue
            known = entry.mark
            if mark.node == self.me or mark.incarnation != known.incarnation or mark.held <= known.held:
                continue
            self.news += 1
            entry.mark = known._replace(held=mark.held)
            entry.data, entry.reported_ns = data, now_ns - max(0, min(age_ns, MOST))
            taken += 1
        return taken

    def marks(self) -> tuple[Mark, ...]:
        """What is known of every node, with what this agent can hand over."""
        return tuple([entry.mark for entry in self.entries.values()])

    def mark_of(self, node: str) -> Mark:
        return self.entries[node].mark

    def difference(self, marks: Iterable[Mark]) -> tuple[list[str], list[str], list[Mark]]:
        """Against a peer's marks: (nodes whose report it lacks, whose report I lack, what I know better)."""
        theirs = {mark.node: mark for mark in marks}
        lacks: list[str] = []
        wanted: list[str] = []
        newer: list[Mark] = []
        for node, entry in self.entries.items():
            mine, known = entry.mark, theirs.pop(node, None)
            if known is None:
                newer.append(mine)
                if mine.held:
                    lacks.append(node)
            elif known != mine:
                if mine[2:5] > known[2:5]:
                    newer.append(mine)
                if mine.held and (mine.incarnation, mine.held) > (known.incarnation, known.held):
                    lacks.append(node)
                elif known.held and (known.incarnation, known.held) > (mine.incarnation, mine.held):
                    wanted.append(node)
        wanted += [node for node, mark in theirs.items() if mark.held]
        return lacks, [node for node in wanted if node != self.me], newer

    def blobs(self, nodes: Iterable[str], now_ns: int) -> tuple[Blob, ...]:
        """Reports of these nodes, as far as they are held."""
        found: list[Blob] = []
        for node in nodes:
            entry = self.entries.get(node)
            if entry is not None and entry.data is not None:
                found.append(Blob(entry.mark, entry.data, now_ns - entry.reported_ns))
        return tuple(found)

    def reports(self) -> Mapping[str, tuple[bytes, tuple[int, int], int]]:
        """Per node: the report, its (incarnation, version), and when it was true on the local clock."""
        return {
            node: (entry.data, (entry.mark.incarnation, entry.mark.held), entry.reported_ns)
            for node, entry in self.entries.items()
            if entry.data is not None
        }

    @property
    def missing(self) -> bool:
        """Some node's newest report is not here."""
        return any(
            entry.mark.held != entry.mark.version or entry.data is None for entry in self.entries.values()
        )

    def outdated(self, since_ns: int) -> frozenset[str]:
        """Nodes whose newest report is not here, or that were last heard of before ``since_ns``."""
        return frozenset(
            node
            for node, entry in self.entries.items()
            if entry.heard_ns < since_ns or entry.data is None or entry.mark.held != entry.mark.version
        )

    def digest(self) -> str:
        """Equal digests mean equal evidence: 16 hexadecimal digits over all (node, incarnation, version)."""
        marks = sorted(entry.mark for entry in self.entries.values())
        text = "\n".join(f"{mark.node} {mark.incarnation} {mark.held}" for mark in marks)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
