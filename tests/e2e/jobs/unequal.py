"""One rank calls something else where the bytes fit: nothing hangs, nothing fails, the results are wrong.

``--fault``: what the rank does in one step's collective. ``legal``: nobody does anything wrong, although the
fingerprints of some calls differ, one rank tries calls that are refused, and all make their group anew.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
import torch.distributed as dist

FAULTS = ("", "dtype", "op", "root", "other", "legal")


def meet(fault: str, world: int) -> None:
    """One collective of a step, as the others make it or in another way."""
    if fault == "dtype":
        dist.all_reduce(torch.ones(64, dtype=torch.int32))
    elif fault == "op":
        dist.all_reduce(torch.ones(64), op=dist.ReduceOp.MAX)
    elif fault == "other":
        dist.reduce_scatter_tensor(torch.ones(64 // world), torch.ones(64))
    else:
        dist.all_reduce(torch.ones(64))


def legal(rank: int) -> None:
    """A view of another type moves the same bytes; a refused call is no call."""
    told = torch.arange(8, dtype=torch.int32)
    dist.broadcast(told if rank else told.view(torch.float32), src=0)
    if rank == 1:
        with contextlib.suppress(TypeError, RuntimeError, ValueError):
            dist.all_reduce("nothing")  # type: ignore[arg-type]
        with contextlib.suppress(TypeError, RuntimeError, ValueError):
            dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX)
    dist.all_gather_object([None] * dist.get_world_size(), {"rank": rank})


def again() -> None:
    """The group is made anew, under its old name and with its old store's address."""
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=FAULTS)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(chosen.steps):
        odd = chosen.fault if rank == chosen.rank and step == chosen.step else ""
        meet(odd, world)
        dist.broadcast(torch.ones(4), src=chosen.rank if odd == "root" else 0)
        if chosen.fault == "legal":
            legal(rank)
        time.sleep(chosen.pause)
    dist.destroy_process_group()
    if chosen.fault == "legal":
        again()


if __name__ == "__main__":
    main()
