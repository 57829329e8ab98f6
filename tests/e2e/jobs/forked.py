"""A launcher: imports torch once and forks the ranks (`forked.py RANKS script.py arguments …`).

Quicker than torchrun by the import of torch in every rank, and a start method of its own that scoutd must
cope with. It ends as mpirun does: when one rank fails, the others get a few seconds to fail too.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import socket
import sys
import time

import torch
import torch._dynamo
import torch.distributed
import torch.nn.parallel
import torch.utils.data  # noqa: F401

GRACE_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def become_rank(rank: int, size: int, port: int, script: str, arguments: list[str]) -> None:
    """Runs the script as this rank; never returns into the launcher's code."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    code = 1
    try:
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()  # as multiprocessing does in its children
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait_for(pids: set[int]) -> int:
    """The first failure's exit code, 0 if there was none; every rank is gone afterwards."""
    first, deadline = 0, float("inf")
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            pids.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code and not first:
                first, deadline = code, time.monotonic() + GRACE_S
        elif time.monotonic() > deadline:
            for left in pids:
                os.kill(left, signal.SIGKILL)
            deadline = float("inf")
        else:
            time.sleep(0.02)
    return first


def main() -> int:
    size, script, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    port = free_port()
    pids = set()
    for rank in range(size):
        pid = os.fork()
        if not pid:
            become_rank(rank, size, port, script, arguments)
        pids.add(pid)
    return 1 if wait_for(pids) else 0


if __name__ == "__main__":
    sys.exit(main())
