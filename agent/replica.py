"""The replicated map of evidence: node → newest report of that node. A state-based CRDT (design §4).

Merge is, per node, the newest incarnation and within it the maximum of version and of beat, so order,
duplicates and loss are harmless, and any two agents that exchanged everything hold equal maps.
The map also remembers, on the local clock, when each node's beat last grew: that is all it says about life.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from scoutd.agent.messages import LAST_BEAT, Blob, Columns, Mark
from scoutd.agent.roster import Entry, Roster

MOST: Final = (1 << 62) - 1
"""A larger incarnation or age is nonsense; sums of what is smaller still fit the wire."""

MOST_NODES: Final = 1 << 15
SPARE_NODES: Final = 16
MINE: Final = 0
"""This node's row of the roster."""


class Compared(NamedTuple):
    """What a peer's columns said: nodes whose beat grew by them, nodes whose report the peer lacks, nodes
    whose report I lack, and what I know better."""

    grown: list[str]
    lacks: list[str]
    wanted: list[str]
    newer: Columns


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
        self._roster = Roster()
        self._mine = self._roster.enter(Mark(me, address, incarnation, 0, 0), 0)
        self.entries: dict[str, Entry] = {me: self._mine}

    @property
    def mine(self) -> Mark:
        return self._mine.mark

    @property
    def roster(self) -> int:
        """Who is known, as a digest."""
        return self._roster.digest

    def expect(self, ranks: int) -> None:
        """The job has so many ranks, 0 if that is unknown, and a node has at least one. A node that was
        replaced may have another name; many more names than that are invented, and are not kept."""
        self._most = min(2 * ranks + SPARE_NODES, MOST_NODES) if ranks else MOST_NODES

    def begin(self, at: int) -> None:
        """This life counts from ``at`` on, a random number. An agent that lost its incarnation may have
        published as many reports as its earlier life: equal marks of different reports would go unnoticed."""
        self._roster.version[MINE] = self._roster.beat[MINE] = at

    def publish(self, data: bytes, now_ns: int) -> None:
        """A new version of this node's own report."""
        self.retract(now_ns)
        self._roster.held[MINE] = self._roster.version[MINE]
        self._mine.data, self._mine.reported_ns = data, now_ns

    def retract(self, now_ns: int) -> None:
        """This node's last report holds no longer, and no newer one is published: to others it is stale."""
        self._roster.version[MINE] += 1
        self.beat(now_ns)
        self.news += 1

    def beat(self, now_ns: int) -> None:
        """This node is alive and has published nothing newer."""
        self._grow(MINE, self._roster.beat[MINE] + 1, now_ns)

    def depart(self, now_ns: int) -> None:
        """This node's part in the job is over, and what it has published is final."""
        self._grow(MINE, LAST_BEAT, now_ns)

    def present(self) -> Collection[str]:
        """Nodes that have not taken their leave, this one included; a look that holds until something is
        merged."""
        if not self._some_left:
            return self.entries.keys()
        return {node: None for node, entry in self.entries.items() if not entry.left}.keys()

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
        """This node listens elsewhere from now on; its beat tells which address is the newer."""
        self._roster.move(self._mine, address, self._mine.incarnation)
        self._roster.beat[MINE] += 1

    def merge_marks(self, marks: Iterable[Mark], now_ns: int) -> list[str]:
        """The marks are known; returns the nodes whose beat grew by that."""
        return [mark.node for mark in marks if self._merge_mark(mark, now_ns)]

    def _merge_mark(self, mark: Mark, now_ns: int) -> bool:
        """True if the node's beat grew."""
        roster, entry = self._roster, self.entries.get(mark.node)
        if entry is self._mine:
            self._outdo(mark)
            return False
        if entry is None and len(self.entries) >= self._most:
            return False
        if entry is None or mark.incarnation > entry.incarnation:
            if entry is None:
                self.entries[mark.node] = roster.enter(mark, now_ns)
            else:
                roster.renew(entry, mark, now_ns)
            self._some_left = self._some_left or mark.left
            self.news += 1
            return True
        if mark.incarnation < entry.incarnation:
            return False
        row = entry.row
        if mark.version > roster.version[row]:
            roster.version[row] = mark.version
            self.news += 1
        if mark.beat <= roster.beat[row]:
            return False
        self._grow(row, mark.beat, now_ns)
        if mark.address != entry.address:
            roster.move(entry, mark.address, entry.incarnation)
        return True

    def _grow(self, row: int, beat: int, now_ns: int) -> None:
        self._roster.beat[row], self._roster.heard_ns[row] = beat, now_ns
        if beat >= LAST_BEAT:
            self._some_left = True

    def _outdo(self, mark: Mark) -> bool:
        """Who sees a higher incarnation of its own adopts it + 1: an earlier life lost its counter. True if
        there was one to outdo.

        Another address under my name whose beats are not mine is a second agent, not an earlier life.
        """
        mine, roster = self._mine, self._roster
        if mark.address != mine.address and mark.incarnation >= mine.incarnation:
            self.conflict = mark.address
        ahead = mark.incarnation == mine.incarnation and (
            mark.version > mine.version or mark.beat > mine.beat or mark.held > mine.held
        )
        earlier = mark.incarnation > mine.incarnation or ahead
        if earlier:
            roster.move(mine, mine.address, min(mark.incarnation + 1, MOST))
            roster.version[MINE] += 1
            roster.beat[MINE] += 1
            roster.held[MINE] = roster.version[MINE] if mine.data is not None else 0
        return earlier

    def columns(self) -> Columns:
        """What is known of every node, with what this agent can hand over."""
        return self._roster.told()

    def compare(self, told: Columns, now_ns: int) -> Compared | None:
        """A peer's columns are known; None if they say nothing here: they are about another roster, or know
        an earlier life of mine."""
        roster, rows = self._roster, self._roster.rows(told)
        if rows is None or not self._follows(told, rows):
            return None
        versions, beats, holds = roster.version, roster.beat, roster.held
        grown: list[int] = []
        lacks: list[int] = []
        wanted: list[int] = []
        newer: list[int] = []
        for k, (row, version, beat, held) in enumerate(
            zip(rows, told.version, told.beat, told.held, strict=True)
        ):
            mine = versions[row]
            if version > mine:
                versions[row] = version
                self.news += 1
            if beat > beats[row]:
                self._grow(row, beat, now_ns)
                grown.append(row)
            if version < mine or beat < beats[row]:
                newer.append(k)
            if held != holds[row]:
                (lacks if held < holds[row] else wanted).append(row)
        at = newer if told.at is None else [told.at[k] for k in newer]
        return Compared(self._names(grown), self._names(lacks), self._names(wanted), roster.told(at))

    def _follows(self, told: Columns, rows: Sequence[int]) -> bool:
        """Nothing is told of this node that it does not know itself, and nothing twice."""
        if MINE not in rows:
            return True
        k = rows.index(MINE)
        theirs = self.mine._replace(version=told.version[k], beat=told.beat[k], held=told.held[k])
        return len(set(rows)) == len(rows) and not self._outdo(theirs)

    def _names(self, rows: Iterable[int]) -> list[str]:
        return [self._roster.entries[row].node for row in rows]

    def merge_blobs(self, blobs: Iterable[Blob], now_ns: int) -> int:
        """Takes the reports that are newer than what is held; returns how many."""
        taken = 0
        for mark, data, age_ns in blobs:
            self._merge_mark(mark, now_ns)
            entry = self.entries.get(mark.node)
            if entry is None or entry is self._mine:
                continue
            if mark.incarnation != entry.incarnation or mark.held <= entry.held:
                continue
            self.news += 1
            self._roster.held[entry.row] = mark.held
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
            node: (entry.data, (entry.incarnation, entry.held), entry.reported_ns)
            for node, entry in self.entries.items()
            if entry.data is not None
        }

    def held(self) -> list[Entry]:
        """The nodes whose report is here, by name."""
        entries = self._roster.entries
        return [entry for row in self._roster.by_name() if (entry := entries[row]).data is not None]

    @property
    def missing(self) -> bool:
        """Some node's newest report is not here."""
        return self._roster.held != self._roster.version or 0 in self._roster.held

    def outdated(self, since_ns: int) -> frozenset[str]:
        """Nodes whose newest report is not here, or that were last heard of before ``since_ns``."""
        roster = self._roster
        columns = zip(self.entries, roster.heard_ns, roster.held, roster.version, strict=True)
        return frozenset(
            [
                node
                for node, heard, held, version in columns
                if heard < since_ns or not held or held != version
            ]
        )

    def quiet(self, now_ns: int) -> dict[str, int]:
        """How long ago each other node was last heard of."""
        found = {
            node: now_ns - heard for node, heard in zip(self.entries, self._roster.heard_ns, strict=True)
        }
        del found[self.me]
        return found

    def digest(self) -> str:
        """Equal digests mean equal evidence: 16 hexadecimal digits over all (node, incarnation, version)."""
        order = (self._roster.entries[row] for row in self._roster.by_name())
        text = "\n".join(f"{entry.node} {entry.incarnation} {entry.held}" for entry in order)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
