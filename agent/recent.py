"""The newest moments of this process, whichever core made them: equal evidence is worked out once.

What depends on no age (who waits for whom, which calls disagree) is the same in every moment of the same
reports. A core takes it over from its own last moment, and from another core's, where reports are the very
same objects: agents that share a process (``decode_report`` reads equal bytes once), simulations, tests.
Nothing is kept alive by it, and no answer changes: it only comes sooner.
"""

from __future__ import annotations

from collections import deque
from typing import Final
from weakref import ref

from scoutd.agent.snapshot import Snapshot

KEPT: Final = 4
"""Agents that judge the same evidence judge it at about the same time."""

_recent: Final[deque[ref[Snapshot]]] = deque(maxlen=KEPT)


def share(moment: Snapshot) -> None:
    """The moment has the answers of an earlier one of the same evidence, or can give them."""
    for known in _recent:
        before = known()
        if before is not None and moment.inherit(before):
            return
    _recent.append(ref(moment))
