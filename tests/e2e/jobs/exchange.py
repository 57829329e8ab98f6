"""Ranks that exchange tokens with all_to_all_single; one deals its own out in a way that nobody expects.

``--fault more``: a receiver gets more than it expects, and Gloo ends it. ``less``: the receivers get less,
and go on with garbage.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "more", "less"])
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(chosen.steps):
        sends = [(rank + other + step) % 3 + 2 for other in range(world)]
        receives = [(rank + other + step) % 3 + 2 for other in range(world)]
        if chosen.fault and rank == chosen.rank and step >= chosen.step:
            odd = [other for other in range(world) if other != rank][:2]
            for other in odd:
                sends[other] += 1 if chosen.fault == "more" else -1
        received = torch.empty(sum(receives), 4)
        dist.all_to_all_single(received, torch.ones(sum(sends), 4), receives, sends)
        dist.all_reduce(torch.ones(2))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
