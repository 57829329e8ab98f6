"""``python -m scoutd.daemon.cli.tether PARENT FOLDER …``: the agent, tied to the ``scoutd run`` above it.

A supervisor that is killed cannot stop its agent, so the kernel does it: a signal when the parent dies
(PR_SET_PDEATHSIG). It is set here, in the agent's own process, because code between fork and exec would run
under the locks of gRPC's threads. Such an agent also removes the folder that its supervisor made for it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from scoutd.daemon.__main__ import main

PR_SET_PDEATHSIG: Final = 1


class Tether:
    """``cut`` once the supervisor is dead. The kernel tells it with SIGUSR1, once for each of its threads,
    so the first one becomes the SIGTERM that ends the agent and the others mean nothing."""

    def __init__(self, parent: int) -> None:
        self.cut = False
        signal.signal(signal.SIGUSR1, self._tell)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
        if os.getppid() != parent:
            self.cut = True

    def _tell(self, _number: int, _frame: FrameType | None) -> None:
        if not self.cut:
            self.cut = True
            os.kill(os.getpid(), signal.SIGTERM)


def tethered(parent: int, folder: str, arguments: Sequence[str]) -> int:
    """The agent has run; nothing of it is left if ``parent`` died first."""
    tether = Tether(parent)
    try:
        return 0 if tether.cut else main(arguments)
    finally:
        if tether.cut:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(tethered(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
