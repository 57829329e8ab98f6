"""Ranks of which one comes late to ``init_process_group``, or never.

``--late sleep``: it sleeps. ``work``: it computes, as imports and caches do. Both for ``--seconds``.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist


def works(until: float) -> None:
    while time.monotonic() < until:
        sum(range(10_000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--late", default="sleep", choices=["sleep", "work"])
    parser.add_argument("--rank", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600)
    chosen = parser.parse_args()
    if int(os.environ["RANK"]) == chosen.rank:
        if chosen.late == "work":
            works(time.monotonic() + chosen.seconds)
        else:
            time.sleep(chosen.seconds)  # never comes
    dist.init_process_group("gloo")
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
