"""A healthy job with everything that makes healthy jobs silent; knows nothing of scoutd.

DDP over all ranks for ``--seconds``, however slow the machine is at least until everything was seen once:
uneven steps, garbage collection, checkpoints of rank 0 behind a barrier, evaluation of all ranks,
recompilation. Silences that nothing announces stay under three seconds, announced ones (checkpoint, compile)
last up to eight.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 32
ANNOUNCED_S = 8.0
UNANNOUNCED_S = 2.0
EVERYTHING = 12
"""Steps in which everything happens once."""


class SlowFile:
    """Storage on which a checkpoint takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def write(self, data: bytes) -> int:
        pause, self.seconds = self.seconds, 0.0
        time.sleep(pause)
        return len(data)

    def flush(self) -> None:
        pass


def checkpoint(model: nn.Module, seconds: float) -> None:
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), SlowFile(seconds))
    dist.barrier()


def evaluate(model: nn.Module, batches: int) -> None:
    model.eval()
    with torch.no_grad():
        loss = sum(model(torch.ones(4, WIDTH)).mean() for _ in range(batches))
    model.train()
    dist.all_reduce(torch.as_tensor(loss))


def recompile(seconds: float, size: int) -> None:
    """One rank's compiler takes long, for a shape that is new."""

    def backend(graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., object]:
        time.sleep(seconds)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x * 2 + size, backend=backend)(torch.ones(size))


def collect() -> None:
    rubbish: list[object] = []
    for _ in range(100_000):
        rubbish.append([rubbish])
    del rubbish
    gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=12.0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    shared, own = random.Random(1), random.Random(100 + rank)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    end = torch.tensor(time.time() + chosen.seconds, dtype=torch.float64)
    dist.broadcast(end, src=0)
    step, going = 0, torch.ones(1)
    while going.item():
        step += 1
        time.sleep(own.choice([0.0, 0.01, 0.05, 0.2]))
        model(torch.randn(8, WIDTH)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 1:
            slow, pause = shared.randrange(world), shared.uniform(0.5, UNANNOUNCED_S)
            time.sleep(pause if slow == rank else 0.0)
        if step % 12 == 4:
            collect()
        if step % 50 == 6:
            checkpoint(model, shared.uniform(6.0, ANNOUNCED_S))
        if step % 30 == 10:
            evaluate(model, 50)
        if step % 70 == 3:
            slow = shared.randrange(world)
            if slow == rank:
                recompile(6.0, step)
        going[0] = float(time.time() < end.item() or step < EVERYTHING)
        dist.broadcast(going, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
