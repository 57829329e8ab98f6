"""A launcher: imports torch once and forks the ranks (`forked.py RANKS script.py arguments …`).

One per host where a job spans several: `--first-rank R --world W --store HOST:PORT` come before RANKS.

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
from argparse import REMAINDER, ArgumentParser, Namespace

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


def become_rank(local_rank: int, job: Namespace) -> None:
    """Runs the script as this rank; never returns into the launcher's code."""
    place = {
        "RANK": job.first_rank + local_rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": job.world or job.ranks,
        "LOCAL_WORLD_SIZE": job.ranks,
    }
    os.environ.update({name: str(value) for name, value in place.items()})
    host, _, port = job.store.rpartition(":")
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=port)
    sys.argv = [job.script, *job.arguments]
    sys.path[0] = os.path.dirname(job.script)
    code = 1
    try:
        runpy.run_path(job.script, run_name="__main__")
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


def job_of(argv: list[str]) -> Namespace:
    parser = ArgumentParser()
    parser.add_argument("--first-rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=0, help="ranks on all hosts; 0: there is no other host")
    parser.add_argument("--store", default="", help="HOST:PORT of rank 0's store; default: a free port here")
    parser.add_argument("ranks", type=int)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=REMAINDER)
    job = parser.parse_args(argv)
    job.store = job.store or f"127.0.0.1:{free_port()}"
    return job


def main() -> int:
    job = job_of(sys.argv[1:])
    pids = set()
    for local_rank in range(job.ranks):
        pid = os.fork()
        if not pid:
            become_rank(local_rank, job)
        pids.add(pid)
    return 1 if wait_for(pids) else 0


if __name__ == "__main__":
    sys.exit(main())
