"""A launcher whose ranks cannot be seen: each is `python -I`, which ignores PYTHONPATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from forked import free_port

BOOT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def start(rank: int, size: int, port: int, arguments: list[str]) -> subprocess.Popen[bytes]:
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    folder = Path(__file__).parent
    command = [sys.executable, "-I", "-c", BOOT, str(folder), str(folder / "train.py"), *arguments]
    return subprocess.Popen(command, env=os.environ | {k: str(v) for k, v in place.items()})


if __name__ == "__main__":
    size, port = int(sys.argv[1]), free_port()
    ranks = [start(rank, size, port, sys.argv[2:]) for rank in range(size)]
    sys.exit(max(rank.wait() for rank in ranks))
