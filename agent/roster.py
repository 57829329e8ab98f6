"""Who is in a replica, and how new what is known of each: as columns of numbers.

Two agents whose rosters have one digest know the same nodes in the same lives at the same addresses. What one
of them knows of all nodes is then told without a name: a version, a beat and a held version each, in the
order of the names. That is a quarter of the bytes of marks, and arrays of numbers are read and compared many
times faster than an object per node. Where the digests differ, marks are told instead.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from scoutd.agent.messages import LAST_BEAT, Columns, Mark


class Entry:
    """One node: a row of the columns, with what is no number. ``data`` is its report, None while only its
    mark is known; ``reported_ns``: when the report was true, on the local clock."""

    __slots__ = ("address", "data", "incarnation", "node", "reported_ns", "row", "table")

    def __init__(self, table: Roster, row: int, node: str, address: str, incarnation: int) -> None:
        self.table: Final = table
        self.row: Final = row
        self.node: Final = node
        self.address = address
        self.incarnation = incarnation
        self.data: bytes | None = None
        self.reported_ns = 0

    @property
    def version(self) -> int:
        return self.table.version[self.row]

    @property
    def beat(self) -> int:
        return self.table.beat[self.row]

    @property
    def held(self) -> int:
        """The version of ``data``, which may be older than ``version``; 0 for none."""
        return self.table.held[self.row]

    @property
    def heard_ns(self) -> int:
        """When a higher beat was last learned, on the local clock."""
        return self.table.heard_ns[self.row]

    @property
    def mark(self) -> Mark:
        return Mark(self.node, self.address, self.incarnation, self.version, self.beat, self.held)

    @property
    def left(self) -> bool:
        """The node has taken its leave."""
        return self.beat >= LAST_BEAT


class Roster:
    """``digest``: 64 bits over every node's name, address and incarnation, in any order. ``entries`` are the
    rows in the order in which they came; ``version`` and so on are columns of them."""

    def __init__(self) -> None:
        self.digest = 0
        self.entries: Final[list[Entry]] = []
        self.version: Final = array("Q")
        self.beat: Final = array("Q")
        self.held: Final = array("Q")
        self.heard_ns: Final = array("q")
        self._stamps: Final[list[int]] = []
        self._by_name: list[int] = []

    def enter(self, mark: Mark, now_ns: int) -> Entry:
        """A node that is not there yet. Nothing of it is held."""
        entry = Entry(self, len(self.entries), mark.node, mark.address, mark.incarnation)
        self.entries.append(entry)
        self._stamps.append(0)
        for column, value in ((self.version, mark.version), (self.beat, mark.beat), (self.held, 0)):
            column.append(value)
        self.heard_ns.append(now_ns)
        self._stamp(entry)
        return entry

    def renew(self, entry: Entry, mark: Mark, now_ns: int) -> None:
        """The node has begun a new life; nothing of it is held."""
        row = entry.row
        entry.address, entry.incarnation, entry.data = mark.address, mark.incarnation, None
        self.version[row], self.beat[row], self.held[row] = mark.version, mark.beat, 0
        self.heard_ns[row] = now_ns
        self._stamp(entry)

    def move(self, entry: Entry, address: str, incarnation: int) -> None:
        """The node is somewhere else, or has another incarnation, and is the same otherwise."""
        entry.address, entry.incarnation = address, incarnation
        self._stamp(entry)

    def by_name(self) -> Sequence[int]:
        """The rows in the order of the nodes' names."""
        if len(self._by_name) != len(self.entries):
            self._by_name = sorted(range(len(self.entries)), key=lambda row: self.entries[row].node)
        return self._by_name

    def told(self, positions: Iterable[int] | None = None) -> Columns:
        """What is known of the nodes at these positions of ``by_name``; None: of all."""
        rows = self.by_name()
        at = None if positions is None else tuple(positions)
        chosen = rows if at is None else [rows[k] for k in at]
        return Columns(
            self.digest,
            tuple([self.version[row] for row in chosen]),
            tuple([self.beat[row] for row in chosen]),
            tuple([self.held[row] for row in chosen]),
            at,
        )

    def rows(self, told: Columns) -> Sequence[int] | None:
        """The rows that a peer's columns are about; None if they are about another roster, or unsound."""
        rows = self.by_name()
        length = len(rows) if told.at is None else len(told.at)
        if told.roster != self.digest or not length == len(told.version) == len(told.beat) == len(told.held):
            return None
        if told.at is None:
            return rows
        return [rows[k] for k in told.at] if all(0 <= k < len(rows) for k in told.at) else None

    def _stamp(self, entry: Entry) -> None:
        text = f"{entry.node}\n{entry.address}\n{entry.incarnation}"
        stamp = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        self.digest ^= self._stamps[entry.row] ^ stamp
        self._stamps[entry.row] = stamp
