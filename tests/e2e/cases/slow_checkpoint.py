"""Rank 0 writes a checkpoint by plain file writes for 9 s while the others wait in a barrier.

Expected: no fault. Made after https://github.com/JIA-Lab-research/LongLoRA/issues/45 and
https://github.com/ByteDance-Seed/VeOmni/pull/1176.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(8):
    dist.all_reduce(torch.ones(64))
    if step == 3:
        if dist.get_rank() == 0:
            with tempfile.TemporaryFile() as file:
                for _ in range(90):
                    file.write(os.urandom(100_000))
                    time.sleep(0.1)
        dist.barrier()
    time.sleep(0.05)
dist.destroy_process_group()
