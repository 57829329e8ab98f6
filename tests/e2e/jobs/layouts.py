"""Small training jobs in hybrid-parallel layouts, in plain PyTorch; knows nothing of scoutd.

``--layout dp-tp``: tensor parallel pairs with all_reduce in forward and backward, DDP across pairs.
``pp-dp``: two pipeline stages with send and recv, two microbatches, DDP within a stage.
``fsdp2``, ``hsdp``: ``fully_shard`` on a mesh of one and of two dimensions.
One rank hangs in its forward, its backward or its optimizer step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH = 16
BLOCKS = 3
FAULTY_BLOCK = 1


class Fault:
    """Sleeps for ever at one place of one step of one rank."""

    def __init__(self, chosen: argparse.Namespace, rank: int) -> None:
        self.place: str = chosen.place
        self.step: int = chosen.step
        self.here = rank == chosen.rank
        self.now = 0

    def at(self, place: str) -> None:
        if self.here and place == self.place and self.now == self.step:
            time.sleep(1_000_000)


class Tripwire(torch.autograd.Function):
    """Identity; its backward is a place for faults."""

    @staticmethod
    def forward(ctx: object, x: Tensor, fault: Fault) -> Tensor:
        ctx.fault = fault
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        ctx.fault.at("backward")
        return grad, None


class ToShards(torch.autograd.Function):
    """Identity whose gradient is summed over the tensor-parallel group."""

    @staticmethod
    def forward(ctx: object, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class FromShards(torch.autograd.Function):
    """Sum over the tensor-parallel group; the gradient passes."""

    @staticmethod
    def forward(ctx: object, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class Block(nn.Module):
    """An MLP, of which a tensor-parallel group holds a slice each."""

    def __init__(self, fault: Fault | None, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.fault = fault
        self.group = group
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if self.fault is not None:
            self.fault.at("forward")
            x = Tripwire.apply(x, self.fault)
        y = x if self.group is None else ToShards.apply(x, self.group)
        y = self.down(torch.relu(self.up(y)))
        return x + (y if self.group is None else FromShards.apply(y, self.group))


class Model(nn.Module):
    def __init__(self, fault: Fault, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(fault if i == FAULTY_BLOCK else None, group) for i in range(BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Optimizer(torch.optim.SGD):
    """SGD whose step is a place for faults."""

    fault: Fault

    def step(self, closure: object = None) -> None:
        self.fault.at("optimizer")
        super().step()


def batch(rank: int) -> Tensor:
    return torch.sin(torch.arange(4 * WIDTH, dtype=torch.float32)).reshape(4, WIDTH) * (rank + 1)


def data_and_tensor_parallel(fault: Fault) -> tuple[nn.Module, Callable[[], None]]:
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    model = DistributedDataParallel(Model(fault, mesh.get_group("tp")), process_group=mesh.get_group("dp"))

    def step() -> None:
        model(batch(mesh.get_local_rank("dp"))).square().mean().backward()

    return model, step


def pipeline(fault: Fault) -> tuple[nn.Module, Callable[[], None]]:
    """Stage 0 is the first half of the ranks."""
    half = dist.get_world_size() // 2
    stage, place = divmod(dist.get_rank(), half)
    other = place + half * (1 - stage)
    groups = [dist.new_group(list(range(half * s, half * s + half))) for s in range(2)]
    model = DistributedDataParallel(Model(fault), process_group=groups[stage])

    def first() -> None:
        for _ in range(2):
            output = model(batch(place))
            dist.send(output.detach(), other)
            grad = torch.empty_like(output)
            dist.recv(grad, other)
            output.backward(grad)

    def last() -> None:
        for _ in range(2):
            received = torch.empty(4, WIDTH)
            dist.recv(received, other)
            received.requires_grad_()
            model(received).square().mean().backward()
            assert received.grad is not None
            dist.send(received.grad, other)

    return model, last if stage else first


def sharded(fault: Fault, layout: str) -> tuple[nn.Module, Callable[[], None]]:
    world = dist.get_world_size()
    if layout == "hsdp":
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (world,))
    model = Model(fault)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    rank = dist.get_rank()

    def step() -> None:
        model(batch(rank)).square().mean().backward()

    return model, step


def train(chosen: argparse.Namespace) -> None:
    torch.manual_seed(0)
    fault = Fault(chosen, dist.get_rank())
    if chosen.layout == "dp-tp":
        model, step = data_and_tensor_parallel(fault)
    elif chosen.layout == "pp-dp":
        model, step = pipeline(fault)
    else:
        model, step = sharded(fault, chosen.layout)
    optimizer = Optimizer(model.parameters(), lr=1e-3)
    optimizer.fault = fault
    for fault.now in range(chosen.steps):
        step()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", required=True, choices=["dp-tp", "pp-dp", "fsdp2", "hsdp"])
    parser.add_argument("--place", default="none", choices=["none", "forward", "backward", "optimizer"])
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(chosen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
