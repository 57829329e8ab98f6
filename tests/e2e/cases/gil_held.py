"""A native call on rank 1 keeps the interpreter lock, so no Python thread there runs, the shim's neither.

Expected: RANK_STALLED, rank 1 (alive, heartbeat silent). Made after
https://github.com/pytorch/pytorch/pull/119393 and https://github.com/pytorch/pytorch/pull/116798.
"""

import ctypes
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(8):
    if (dist.get_rank(), step) == (1, 4):
        ctypes.PyDLL(None).sleep(100_000)
    dist.all_reduce(torch.ones(64))
    time.sleep(0.1)
dist.destroy_process_group()
