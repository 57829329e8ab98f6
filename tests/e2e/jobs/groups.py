"""Jobs of several process groups, in plain PyTorch; knows nothing of scoutd.

``two``: two groups that have nothing to do with each other; the ranks ``--hung`` sleep for ever in one step.
``prefetch``: tp {0, 1}, {2, 3} and fsdp {0, 2}, {1, 3}. Ranks 0 and 1 start the next gather of their fsdp
group before they need it, and feed ranks 2 and 3, which join the gather only then. A hung rank 0 or 1 has
its gather in flight.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist


def two(hung: list[int], faulty_step: int, steps: int) -> None:
    half = dist.get_world_size() // 2
    groups = [dist.new_group(list(range(half * k, half * k + half))) for k in range(2)]
    group = groups[dist.get_rank() // half]
    for step in range(steps):
        if dist.get_rank() in hung and step == faulty_step:
            time.sleep(1_000_000)
        dist.all_reduce(torch.ones(8), group=group)
        time.sleep(0.05)


def prefetch(hung: list[int], faulty_step: int, steps: int) -> None:
    rank = dist.get_rank()
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    shards = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    for step in range(steps):
        whole, numbers = torch.empty(16), torch.ones(8)
        if rank >= 2:
            dist.recv(numbers, rank - 2)
        work = dist.all_gather(list(whole.chunk(2)), numbers, group=shards, async_op=True)
        if rank in hung and step == faulty_step:
            time.sleep(1_000_000)
        dist.all_reduce(numbers, group=tensor)
        if rank < 2:
            dist.send(numbers, rank + 2)
        work.wait()
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["two", "prefetch"])
    parser.add_argument("--hung", type=int, nargs="*", default=[])
    parser.add_argument("--step", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    {"two": two, "prefetch": prefetch}[chosen.kind](chosen.hung, chosen.step, chosen.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
