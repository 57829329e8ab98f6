"""A small but real DDP training job in plain PyTorch: residual blocks, AdamW, a DataLoader, Gloo.

It knows nothing of scoutd. Started by torchrun, by ``forked.py`` or by ``spawned.py``; ``RANK`` and the rest
come from the environment. With ``--progress DIR`` rank r keeps its number of finished steps in DIR/rank-r
and its last loss, bit for bit, in DIR/loss-r.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from faults import Fault, add_options

WIDTH = 32


class Numbers(Dataset[Tensor]):
    """Seeded vectors, the same on every rank; ``fault`` may strike while one is fetched."""

    def __init__(self, count: int, fault: Fault, batch: int) -> None:
        self.count = count
        self.fault = fault
        self.batch = batch

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        if index // self.batch == self.fault.step:
            self.fault.now = self.fault.step
            self.fault.at("input")
        return torch.sin(torch.arange(WIDTH) * (index + 1.0))


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


class Mlp(nn.Module):
    def __init__(self, fault: Fault | None) -> None:
        super().__init__()
        self.fault = fault
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if self.fault is not None:
            self.fault.at("forward")
            x = Tripwire.apply(x, self.fault)
        out: Tensor = self.down(torch.relu(self.up(x)))
        return out


class Block(nn.Module):
    def __init__(self, fault: Fault | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = Mlp(fault)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.mlp(self.norm(x))
        return out


class Model(nn.Module):
    """Four blocks; the fault's home is the second."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(fault if i == 1 else None) for i in range(4))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out


def options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two steps")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--context", default="fork", help="start method of DataLoader workers")
    parser.add_argument("--barrier", action="store_true", help="a barrier after every step")
    parser.add_argument("--progress", default="")
    parser.add_argument("--clean-restart", action="store_true", help="no fault after a torchrun restart")
    parser.add_argument("--second-fault", default="", help="the fault after a torchrun restart")
    parser.add_argument("--second-rank", type=int, default=2)
    chosen = parser.parse_args(argv)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if restarted and (chosen.clean_restart or chosen.second_fault):
        chosen.fault, chosen.rank = chosen.second_fault, chosen.second_rank
    return chosen


def note(folder: str, name: str, text: str) -> None:
    """The file ``name`` holds ``text``, whole at any time."""
    if folder:
        draft = Path(folder, f".{name}")
        draft.write_text(text)
        draft.replace(Path(folder, name))


def loader_of(chosen: argparse.Namespace, fault: Fault) -> DataLoader[Tensor]:
    batch = 8
    return DataLoader(
        Numbers(chosen.steps * batch, fault, batch),
        batch_size=batch,
        num_workers=chosen.workers,
        multiprocessing_context=chosen.context if chosen.workers else None,
    )


def train(chosen: argparse.Namespace, rank: int) -> None:
    torch.manual_seed(0)
    fault = Fault(chosen, rank)
    model = DistributedDataParallel(Model(fault))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, x in enumerate(loader_of(chosen, fault)):
        fault.now = step
        loss = nn.functional.mse_loss(model(x), x * (rank + 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        fault.reduce_metric()
        fault.at("between")
        if chosen.barrier:
            dist.barrier()
        note(chosen.progress, f"rank-{rank}", str(step + 1))
        note(chosen.progress, f"loss-{rank}", float(loss.detach()).hex())
        time.sleep(chosen.pace)


def main(argv: list[str] | None = None) -> None:
    chosen = options(argv)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(chosen, dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
