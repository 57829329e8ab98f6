"""Ranks of a test that wait after each step until all have heard what was told of broadcasts.

A job's steps are as short as those of a test never are: without it, what travels through the store would come
after any number of steps. Ranks meet in a store of their own, so the job's collectives are as before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from scoutd.shim import session
from scoutd.shim.replay import broadcast

DEADLINE_S = 30.0


class Meeting:
    """``after_step`` returns when rank 0's broadcast has come everywhere, and the step that it has chosen."""

    def __init__(self, folder: Path, world: int) -> None:
        self._store = dist.FileStore(str(folder / "meeting"), world)
        self._store.set_timeout(timedelta(seconds=2 * DEADLINE_S))
        self._number = 0
        vars(broadcast).update(AHEAD_S=0.0, AHEAD_SHARE=0.0, IDLE_S=0.02)

    def after_step(self) -> None:
        """Nothing happens where nothing is broadcast."""
        if session._session is None or session._session.replays.sharing._peers is None:
            return
        sharing = session._session.replays.sharing
        self._number += 1
        if sharing._leader is not None:
            leader = sharing._leader
            self._wait(lambda: leader.is_free or leader._ready == leader.sent)
            self._store.set(str(self._number), leader.told)
        else:
            told, follower = self._store.get(str(self._number)), sharing._follower
            assert follower is not None
            self._wait(lambda: follower.heard == told)

    def _wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError("a broadcast has not come")
            time.sleep(0.002)
