"""The kernel kills rank 1 for memory; its peers only see a lost connection. No module, no optimizer.

Expected: PROCESS_DEAD, rank 1. Made after https://github.com/rwth-i6/returnn/issues/1484.
"""

import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(8):
    if step == 3 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1024))
    time.sleep(0.1)
dist.destroy_process_group()
