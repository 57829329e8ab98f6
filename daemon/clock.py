"""The two clocks: monotonic for every decision and duration, wall time only for what people read."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Final

NS_PER_S: Final = 1_000_000_000


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC, the clock that the shims stamp with."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def wall_ns() -> int:
    """Nanoseconds since the epoch, UTC."""
    return time.time_ns()


def rfc3339(epoch_ns: int) -> str:
    """UTC with milliseconds: ``2025-01-31T12:00:00.250Z``. Fixed width, so texts sort as times do."""
    moment = datetime.fromtimestamp(epoch_ns // NS_PER_S, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{epoch_ns // 1_000_000 % 1000:03d}Z"


class Stamps:
    """Turns monotonic stamps of this boot into wall times.

    The offset between the clocks is taken once, when the agent starts: a later jump of the wall clock then
    moves no reported time, and two stamps keep their distance.
    """

    def __init__(self, monotonic: int | None = None, wall: int | None = None) -> None:
        now = monotonic_ns() if monotonic is None else monotonic
        self._offset_ns: Final = (wall_ns() if wall is None else wall) - now

    def wall_ns(self, stamp_ns: int) -> int:
        """Nanoseconds since the epoch of a monotonic stamp."""
        return stamp_ns + self._offset_ns

    def text(self, stamp_ns: int | None) -> str:
        """RFC 3339 of a monotonic stamp, empty for None."""
        return "" if stamp_ns is None else rfc3339(self.wall_ns(stamp_ns))
