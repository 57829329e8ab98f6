"""C3, the consensus over a peer group (SCOUT §2), exact mode.

Every rank applies the same rule to the same ordered evidence, so no coordinator is needed. The rule is
majority, not correctness: a fault that all peers share agrees with itself.

Deviation from SCOUT §2: evidence may be missing (None). Missing evidence counts in N, so it can never help
a value to a majority, and a rank without evidence is never an outlier. Groups under three never attribute:
one has nobody to compare with, two can disagree but not be judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from scoutd.agent.verdict import Status

SMALLEST_GROUP: Final = 3


@dataclass(frozen=True, slots=True)
class Consensus:
    """Result R = (s, B, E). ``outliers[j]`` is B[j]; ``reason`` says why nobody was attributed."""

    status: Status
    outliers: tuple[bool, ...]
    evidence: tuple[Hashable | None, ...]
    reason: str = ""
    majority: Hashable | None = None


def exact(evidence: Sequence[Hashable | None]) -> Consensus:
    """Strict majority over ``evidence`` (one item per member, in group order; None: missing).

    AGREE only if every member spoke and all are equal; ATTRIBUTED if more than half agree and somebody
    said something else; INCONCLUSIVE otherwise. Reference: SCOUT §2, algorithm 1, lines 4–9.
    """
    items = tuple(evidence)
    nobody = (False,) * len(items)
    counts = Counter(item for item in items if item is not None)
    if not counts:
        return Consensus(Status.INCONCLUSIVE, nobody, items, "no evidence")
    majority, count = counts.most_common(1)[0]
    if len(counts) == 1:
        missing = len(items) - count
        if missing:
            return Consensus(Status.INCONCLUSIVE, nobody, items, f"evidence of {missing} missing", majority)
        return Consensus(Status.AGREE, nobody, items, "", majority)
    if len(items) < SMALLEST_GROUP:
        return Consensus(Status.INCONCLUSIVE, nobody, items, f"too few: a group of {len(items)}")
    if 2 * count <= len(items):
        return Consensus(Status.INCONCLUSIVE, nobody, items, "no strict majority")
    outliers = tuple(item is not None and item != majority for item in items)
    return Consensus(Status.ATTRIBUTED, outliers, items, "", majority)
