"""Which ranks are ours where several agents share one machine (``scoutd run --nodes N``).

Ranks are split into blocks of neighbours, as a launcher places them on nodes. On a machine of its own an
agent observes every rank that it finds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Block ``index`` (from 0) of ``of``."""

    index: int
    of: int

    def holds(self, rank: int, world_size: int) -> bool:
        return rank * self.of // max(world_size, 1) == self.index

    def size(self, world_size: int) -> int:
        """How many ranks it holds."""
        return sum(self.holds(rank, world_size) for rank in range(world_size))


def parse_share(text: str) -> Share | None:
    """The share in "2/4", None for anything else."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if found is None:
        return None
    index, of = int(found[1]), int(found[2])
    return Share(index, of) if index < of else None
