"""A launcher: torch.multiprocessing.spawn, as many scripts start their own ranks."""

from __future__ import annotations

import os
import sys

import torch.multiprocessing as mp

from forked import free_port
from train import main


def rank_main(rank: int, size: int, port: int, arguments: list[str]) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    main(arguments)


if __name__ == "__main__":
    mp.spawn(rank_main, args=(int(sys.argv[1]), free_port(), sys.argv[2:]), nprocs=int(sys.argv[1]))
