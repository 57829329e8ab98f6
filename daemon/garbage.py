"""Python's cycle collector, told what an agent's memory looks like.

Reports, calls and verdicts hold no cycles: they go when nobody refers to them. A full collection walks over
all of them, several hundred milliseconds in a job of 100,000 ranks, in which the agent hears nobody, and
finds nothing. Cycles come from tasks and exceptions, and are found young.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 10_000
MIDDLE: Final = 20
OLD: Final = 100
"""A full collection after YOUNG x MIDDLE x OLD objects more than were freed."""


def settle() -> None:
    """What exists now is permanent, and full collections are rare from here on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
