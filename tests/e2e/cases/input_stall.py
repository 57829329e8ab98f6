"""The thread that feeds rank 0 ends without a word; rank 0 waits in queue.get for a batch that never comes.

Expected: RANK_STALLED, rank 0; 1–3 wait for it in all_reduce. Made after
https://github.com/pytorch/pytorch/issues/87995.
"""

import queue
import threading
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
batches: queue.Queue = queue.Queue(2)


def feed() -> None:
    for step in range(8):
        if (dist.get_rank(), step) == (0, 4):
            return
        batches.put(torch.randn(8, 16))


threading.Thread(target=feed, daemon=True).start()
for _ in range(8):
    dist.all_reduce(batches.get().sum(0))
    time.sleep(0.1)
dist.destroy_process_group()
