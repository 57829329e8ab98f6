"""A rank forgets a call that the others wait in: ``new_group`` of other ranks, an operation on the store."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist


def group(rank: int, forgetful: int) -> None:
    """A group that its members alone make; the next one, which all make, has another name on the others.

    The forgetful rank comes a little later: at once it would take the first group's place in the store.
    """
    members = [r for r in range(dist.get_world_size()) if r != forgetful]
    if rank != forgetful:
        dist.new_group(members)
    else:
        time.sleep(2.0)
    dist.new_group()
    dist.all_reduce(torch.ones(4))


def store(rank: int, forgetful: int) -> None:
    """A barrier by hand, to which one rank does not come."""
    shared = dist.distributed_c10d._get_default_store()
    if rank == forgetful:
        time.sleep(3600)
    if shared.add("arrived", 1) == dist.get_world_size():
        shared.set("all here", b"1")
    shared.wait(["all here"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["group", "store"])
    parser.add_argument("--rank", type=int, default=2)
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    {"group": group, "store": store}[chosen.what](dist.get_rank(), chosen.rank)


if __name__ == "__main__":
    main()
