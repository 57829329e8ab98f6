"""Centre and scale of a few numbers, one or several of which may be arbitrarily wrong (SCOUT §2).

The median bears anything that less than half of the values say, the median absolute deviation (MAD) too. The
MAD is 0 as soon as more than half are equal, which coarse clocks make of healthy times; then the
inter-quartile range speaks, and where three quarters are equal the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAD_TO_SIGMA: Final = 1.4826
"""1 / Φ⁻¹(3/4): the standard deviation of normal values whose MAD is 1."""
IQR_TO_SIGMA: Final = 0.7413
"""1 / (2 · Φ⁻¹(3/4)): likewise for the inter-quartile range."""
SIGMAS_IN_RANGE: Final = 6
"""Six standard deviations span practically all normal values; and with κ = 3.5 a lone deviant among equal
values is beyond κ · scale, which it is only where this is more than κ."""


def median(values: Sequence[float]) -> float:
    """The true median: of an even number the mean of the middle two. ``values`` must not be empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1], ordered[middle]
    return low + (high - low) / 2


def robust_scale(values: Sequence[float]) -> float:
    """An estimate of the standard deviation; 0 only if all values are equal."""
    centre = median(values)
    mad = median([abs(value - centre) for value in values])
    if mad > 0:
        return MAD_TO_SIGMA * mad
    ordered = sorted(values)
    iqr = _quantile(ordered, 0.75) - _quantile(ordered, 0.25)
    if iqr > 0:
        return IQR_TO_SIGMA * iqr
    return (ordered[-1] - ordered[0]) / SIGMAS_IN_RANGE


def _quantile(ordered: Sequence[float], part: float) -> float:
    """By linear interpolation between order statistics."""
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
