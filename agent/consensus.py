"""C3, the consensus over a peer group (SCOUT §2): exact, for what must be equal bit by bit, and statistical,
for what is only alike, such as times.

Every rank applies the same rule to the same ordered evidence, so no coordinator is needed. The rule is
majority, not correctness: a fault that all peers share agrees with itself, and a slowdown of the whole group
moves the median with it.

Three things are never agreement. *Missing* evidence (None) counts in N, so it can never help a value to a
majority, and a rank without evidence is never an outlier. A *NaN or an infinity* is evidence of a fault: it
never joins a majority, not even of its like. *Mixed schemes* are not comparable at all.

Deviations from SCOUT §2, which knows neither missing nor non-finite evidence: the above; groups under three
never attribute (one has nobody to compare with, two can disagree but not be judged: SCOUT §1); statistical
C3 measures distance in 1.4826 · MAD, which is the standard deviation for normal values, with κ = 3.5 as
Iglewicz and Hoaglin recommend for that very score, where the paper's d is the MAD itself; and it flags only
what is also beyond a relative and an absolute floor, because in a quiet group the rule alone would call a
difference of a thousandth an outlier.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from scoutd.agent.statistics import median, robust_scale
from scoutd.agent.verdict import Status

SMALLEST_GROUP: Final = 3
KAPPA: Final = 3.5
"""Iglewicz and Hoaglin (1993): of 10,000 normal values 5 are as far off."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Evidence of one tensor: H_64 under ``scheme``; ``finite``: it holds no NaN and no infinity."""

    scheme: int
    value: int
    finite: bool = True


@dataclass(frozen=True, slots=True)
class Floors:
    """Deviations up to the greater of ``relative`` · |median| and ``absolute`` (in the unit of the values)
    are no disagreement, however quiet the group."""

    relative: float = 0.0
    absolute: float = 0.0

    def at(self, centre: float) -> float:
        return max(self.relative * abs(centre), self.absolute)


@dataclass(frozen=True, slots=True)
class Consensus:
    """Result R = (s, B, E). ``outliers[j]`` is B[j]; ``reason`` says why nobody was attributed.

    ``majority``: the value that more than half share, None where there is none and in statistical mode.
    ``centre`` and ``limit``: in statistical mode the median and the deviation beyond which B[j] is set.
    """

    status: Status
    outliers: tuple[bool, ...]
    evidence: tuple[Hashable | None, ...]
    reason: str = ""
    majority: Hashable | None = None
    centre: float | None = None
    limit: float | None = None


def exact(evidence: Sequence[Hashable | None]) -> Consensus:
    """Strict majority over ``evidence`` (one item per member, in group order; None: missing).

    AGREE only if every member spoke and all are equal; ATTRIBUTED if more than half agree and somebody
    said something else; INCONCLUSIVE otherwise. Reference: SCOUT §2, algorithm 1, lines 4–9.
    """
    items = tuple(evidence)
    counts = Counter(items)
    counts.pop(None, None)
    schemes = sorted({item.scheme for item in counts if isinstance(item, Signature)})
    if len(schemes) > 1:
        return _inconclusive(items, f"mixed schemes: {', '.join(map(str, schemes))}")
    unsound = sum(counts.pop(item) for item in list(counts) if not _sound(item))
    if not counts:
        return _inconclusive(items, f"not finite: all {unsound}" if unsound else "no evidence")
    majority, count = counts.most_common(1)[0]
    if len(counts) == 1 and not unsound:
        return _unanimous(items, majority, len(items) - count)
    if len(items) < SMALLEST_GROUP:
        return _inconclusive(items, f"too few: a group of {len(items)}")
    if 2 * count <= len(items):
        return _inconclusive(items, "no strict majority")
    outliers = tuple(item is not None and item != majority for item in items)
    return Consensus(Status.ATTRIBUTED, outliers, items, "", majority)


def statistical(
    values: Sequence[float | None], kappa: float = KAPPA, floors: Floors | None = None
) -> Consensus:
    """Robust distance from the median over ``values`` (one per member, in group order; None: missing).

    B[j] is set where |x − m| > κ · scale and beyond the floors, and where x is not finite; the scale falls
    back from 1.4826 · MAD to the inter-quartile range to the range. ATTRIBUTED if somebody is set and the
    others are more than half of all members; AGREE if nobody is and every member spoke; else INCONCLUSIVE.
    Of equal values the scale is 0, and they agree. Reference: SCOUT §2, algorithm 1, lines 10–15.
    """
    items = tuple(values)
    finite = [value for value in items if value is not None and math.isfinite(value)]
    if not finite:
        unsound = len(items) - items.count(None)
        return _inconclusive(items, f"not finite: all {unsound}" if unsound else "no evidence")
    centre = median(finite)
    limit = max(kappa * robust_scale(finite), (floors or Floors()).at(centre))
    flags = tuple(value is not None and not abs(value - centre) <= limit for value in items)
    return _weighed(items, flags, centre, limit)


def _weighed(
    items: tuple[float | None, ...], flags: tuple[bool, ...], centre: float, limit: float
) -> Consensus:
    """What the flags mean for the group: whether those that are not flagged can carry a judgement."""
    size, flagged, missing = len(items), sum(flags), items.count(None)
    reason = ""
    if flagged and size < SMALLEST_GROUP:
        reason = f"too few: a group of {size}"
    elif flagged and 2 * (size - missing - flagged) <= size:
        reason = "no strict majority"
    elif missing and not flagged:
        reason = f"evidence of {missing} missing"
    if reason:
        return Consensus(Status.INCONCLUSIVE, (False,) * size, items, reason, None, centre, limit)
    status = Status.ATTRIBUTED if flagged else Status.AGREE
    return Consensus(status, flags, items, "", None, centre, limit)


def _unanimous(items: tuple[Hashable | None, ...], majority: Hashable, missing: int) -> Consensus:
    nobody = (False,) * len(items)
    if missing:
        return Consensus(Status.INCONCLUSIVE, nobody, items, f"evidence of {missing} missing", majority)
    return Consensus(Status.AGREE, nobody, items, "", majority)


def _inconclusive(items: tuple[Hashable | None, ...], reason: str) -> Consensus:
    return Consensus(Status.INCONCLUSIVE, (False,) * len(items), items, reason)


def _sound(item: Hashable) -> bool:
    """Whether the item may join a majority: it holds no NaN and no infinity."""
    if isinstance(item, float):
        return math.isfinite(item)
    if isinstance(item, Signature):
        return item.finite
    return all(map(_sound, item)) if isinstance(item, tuple) else True
