"""Which nodes are out of reach, and which are suspected of it while others are asked about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class _Suspicion:
    """``waiting``: whose answers are still to come."""

    waiting: set[str]
    since_ns: int


class Reach:
    """``lost``: nodes out of reach, with the local time since when."""

    def __init__(self) -> None:
        self.lost: dict[str, int] = {}
        self._suspicions: dict[str, _Suspicion] = {}

    @property
    def asking(self) -> bool:
        """Others are being asked about some node."""
        return bool(self._suspicions)

    def suspected(self, node: str) -> bool:
        """Others are being asked about the node."""
        return node in self._suspicions

    def doubtful(self, node: str) -> bool:
        """The node is suspected already, or lost."""
        return node in self._suspicions or node in self.lost

    def suspect(self, node: str, asked: Iterable[str], now_ns: int) -> None:
        """These have been asked to try."""
        self._suspicions[node] = _Suspicion(set(asked), now_ns)

    def heard(self, node: str) -> None:
        """The node is in reach."""
        self.lost.pop(node, None)
        self._suspicions.pop(node, None)

    def tried(self, node: str, through: str, reached: bool) -> int | None:
        """One of those who were asked has tried. Since when the node is suspected, if it was the last and
        nobody has reached it; then it is suspected no longer."""
        suspicion = self._suspicions.get(node)
        if suspicion is None:
            return None
        suspicion.waiting.discard(through)
        if reached or not suspicion.waiting:
            del self._suspicions[node]
        return None if reached or suspicion.waiting else suspicion.since_ns
