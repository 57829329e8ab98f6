"""Adaptive time-outs: T = H + k·σ over probe round trips (design §4, algorithms §10).

H is the smoothed round trip and σ its deviation, so a slow or jittery network widens the time-out by itself,
and k = 3…5 keeps a healthy peer from being suspected. Exponential averages with weight 1/8 and 1/4, as TCP
uses them (RFC 6298).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEAN_WEIGHT: Final = 0.125
DEVIATION_WEIGHT: Final = 0.25


@dataclass(slots=True)
class RoundTrip:
    """``least_ns`` and ``most_ns`` bound the time-out; before the first sample it is the most."""

    k: float
    least_ns: int
    most_ns: int
    mean_ns: float | None = None
    deviation_ns: float = 0.0

    def add(self, sample_ns: int) -> None:
        if self.mean_ns is None:
            self.mean_ns, self.deviation_ns = float(sample_ns), sample_ns / 2
            return
        error = abs(sample_ns - self.mean_ns)
        self.deviation_ns += DEVIATION_WEIGHT * (error - self.deviation_ns)
        self.mean_ns += MEAN_WEIGHT * (sample_ns - self.mean_ns)

    @property
    def timeout_ns(self) -> int:
        if self.mean_ns is None:
            return self.most_ns
        wanted = int(self.mean_ns + self.k * self.deviation_ns)
        return max(self.least_ns, min(self.most_ns, wanted))
