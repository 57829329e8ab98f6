"""``python -m scoutd.daemon.cli.tether PARENT …``: the agent, tied to the life of the ``scoutd run`` that
starts it.

A supervisor that is killed cannot stop its agent, so the kernel does it: SIGTERM when the parent dies
(PR_SET_PDEATHSIG). It is set here, in the agent's own process, because code between fork and exec would run
under the locks of gRPC's threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

from scoutd.daemon.__main__ import main

PR_SET_PDEATHSIG: Final = 1


def tie(parent: int) -> bool:
    """True if SIGTERM will come when ``parent`` dies; False if it is dead already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    return os.getppid() == parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]) if tie(int(sys.argv[1])) else 0)
