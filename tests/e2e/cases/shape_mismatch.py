"""all_gather with one sample fewer, or more, on rank 2: the collate function dropped a broken sample.

Gloo aborts a rank: with fewer rows rank 2 itself, with more an innocent one. Expected: COLLECTIVE_MISMATCH,
rank 2, both shapes. `shape_mismatch.py ROWS`. Made after https://github.com/xljh0520/JOTR/issues/4.
"""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(8):
    rows = int(sys.argv[1]) if (rank, step) == (2, 3) else 8
    batch = torch.full((rows, 16), float(rank))
    dist.all_gather([torch.zeros_like(batch) for _ in range(world)], batch)
    time.sleep(0.1)
dist.destroy_process_group()
