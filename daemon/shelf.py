"""What verdicts were decided on, kept for whoever asks for a bundle; it outlives the job.

A moment shares its reports with the core's newest ones, so keeping it costs what has changed since. The
oldest goes when there are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scoutd.agent.moment import Moment

KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class Kept:
    """``decided_ns`` is a monotonic stamp of this agent."""

    id: str
    moment: Moment
    decided_ns: int


class Shelf:
    def __init__(self, limit: int = KEPT) -> None:
        self._limit: Final = limit
        self._kept: Final[dict[str, Kept]] = {}

    def put(self, verdict_id: str, moment: Moment | None, now_ns: int) -> None:
        """The moment is kept; an equal one keeps the time at which it was decided first."""
        known = self._kept.get(verdict_id)
        if moment is None or (known is not None and known.moment is moment):
            return
        self._kept.pop(verdict_id, None)
        self._kept[verdict_id] = Kept(verdict_id, moment, now_ns)
        if len(self._kept) > self._limit:
            del self._kept[next(iter(self._kept))]

    def find(self, beginning: str) -> list[Kept]:
        """Every kept moment whose verdict's id begins so; none for an empty text."""
        return [kept for identity, kept in self._kept.items() if beginning and identity.startswith(beginning)]
