"""A small character transformer trained with DistributedDataParallel on the CPU: an ordinary training script.

    torchrun --standalone --nproc-per-node=4 char_transformer.py

It knows nothing of scoutd. With ``--fault`` one rank breaks at a chosen step, the way real ranks do: it
stops in the middle of a forward pass, is killed, raises an exception, or calls a collective with a tensor of
another size than its peers.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

CONTEXT = 64
WIDTH = 64
HEADS = 4


class Fault:
    """What breaks, on which rank and when; ``step`` is kept up to date by the training loop."""

    def __init__(self, kind: str, rank: int, at_step: int) -> None:
        self.kind = kind if rank == dist.get_rank() else "none"
        self.at_step = at_step
        self.step = 0

    def is_due(self, kind: str) -> bool:
        return self.kind == kind and self.step == self.at_step


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) → the same."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(x))
        if self.fault is not None and self.fault.is_due("hang"):
            while True:  # a lock that nobody releases, a file server that does not answer
                time.sleep(1.0)
        if self.fault is not None and self.fault.is_due("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault is not None and self.fault.is_due("exception"):
            raise ValueError(f"the batch of step {self.fault.step} holds a character of no vocabulary")
        return self.down(hidden)


class Block(nn.Module):
    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = MLP(fault)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    """Predicts the next character. The fault, if any, sits in the third block's MLP."""

    def __init__(self, vocabulary: int, blocks: int, fault: Fault) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(fault if i == 2 else None) for i in range(blocks))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, time) of character numbers → (batch, time, vocabulary) of logits."""
        x = self.characters(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(text: Tensor, size: int, seed: int) -> torch.utils.data.DataLoader:
    """Endless random windows of the text; every rank draws its own."""
    generator = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(Windows(text, generator), batch_size=size)


class Windows(torch.utils.data.IterableDataset):
    def __init__(self, text: Tensor, generator: torch.Generator) -> None:
        self.text = text
        self.generator = generator

    def __iter__(self):
        while True:
            start = int(torch.randint(len(self.text) - CONTEXT - 1, (1,), generator=self.generator))
            window = self.text[start : start + CONTEXT + 1]
            yield window[:-1], window[1:]


def mean_over_ranks(loss: Tensor, fault: Fault) -> float:
    """The loss averaged over all ranks; a faulty rank brings a tensor of another size."""
    value = loss.detach().reshape(1)
    if fault.is_due("mismatch"):
        value = value.repeat(4)
    dist.all_reduce(value)
    return value[0].item() / dist.get_world_size()


def train(options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(1)
    fault = Fault(options.fault, options.fault_rank, options.fault_step)
    raw = options.text.read_text(encoding="utf-8")
    vocabulary = sorted(set(raw))
    number = {character: i for i, character in enumerate(vocabulary)}
    text = torch.tensor([number[character] for character in raw])
    model = DistributedDataParallel(CharTransformer(len(vocabulary), options.blocks, fault))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters} parameters, {len(raw)} characters, {dist.get_world_size()} ranks", flush=True)
    loader = iter(batches(text, options.batch, seed=rank))
    for step in range(1, options.steps + 1):
        fault.step = step
        tokens, targets = next(loader)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = mean_over_ranks(loss, fault)
        if rank == 0 and (step == 1 or step % options.report == 0):
            print(f"step {step:4d}  loss {mean:.3f}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, default=Path(__file__).with_name("text.txt"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--report", type=int, default=5, help="print the loss every so many steps")
    parser.add_argument("--fault", choices=["none", "hang", "kill", "exception", "mismatch"], default="none")
    parser.add_argument("--fault-rank", type=int, default=0)
    parser.add_argument("--fault-step", type=int, default=20)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
