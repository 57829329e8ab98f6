"""``python -m scoutd.daemon.cli.tether PARENT FOLDER …``: the agent, tied to the ``scoutd run`` above it.

A supervisor that is killed cannot stop its agent, so the kernel does it: SIGTERM when the parent dies
(PR_SET_PDEATHSIG). It is set here, in the agent's own process, because code between fork and exec would run
under the locks of gRPC's threads. Such an agent also removes the folder that its supervisor made for it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from scoutd.daemon.__main__ import main

PR_SET_PDEATHSIG: Final = 1
DYING_S: Final = 0.25


def tethered(parent: int, folder: str, arguments: Sequence[str]) -> int:
    """The agent has run; nothing of it is left if ``parent`` died first."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        return main(arguments) if os.getppid() == parent else 0
    finally:
        if _orphaned(parent):
            shutil.rmtree(folder, ignore_errors=True)


def _orphaned(parent: int) -> bool:
    """The supervisor is dead. The kernel tells its death a moment before it gives us a new parent."""
    deadline = time.monotonic() + DYING_S
    while os.getppid() == parent:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


if __name__ == "__main__":
    sys.exit(tethered(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
