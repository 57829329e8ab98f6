"""What the shim and its replays cost a trainer: prints one JSON object as its last line.

    python tests/bench/overhead.py [--rounds 6] [--blocks 12] [--variants 3] [--every 20] [--json]

One process trains a transformer of equal blocks under DDP, and its processor time is measured step by step,
so that neither a slow moment of the machine nor others on it count. Steps without scoutd and attached without
replays alternate in short stretches; the median of neighbours' ratios counts. Replays are made every SPACING
steps, and what they cost is the difference to the steps around; every recipe's turn comes in each round.
What a recipe pays once (its rehearsal) is paid before.

Keys: ``step_ratio_attached`` step time attached without replays over step time without scoutd;
``step_ratio_replay`` with V variants every I steps over attached without; ``model_ratio`` what the paper's
model says, 1 + V/(I·N); ``limit_ratio`` 1 + 1.5·V/(I·N), which the second must not exceed;
``collectives_in_critical_path`` collectives of the steps with replays beyond those of as many steps without.
Reference: SCOUT §3.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too
import statistics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import scoutd.shim
from scoutd.shim import session

VOCABULARY = 256
STRETCH = 3
SPACING = 5
LIMIT = 1.5


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.mix(self.norm_1(x)).chunk(3, -1)
        )
        attention = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))  # type: ignore[no-any-return]


class Model(nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


class Trainer:
    """A model under DDP that can be stepped."""

    def __init__(self, blocks: int, width: int, batch: int, length: int) -> None:
        torch.manual_seed(1)
        self.model = DistributedDataParallel(Model(blocks, width))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.ids = torch.randint(0, VOCABULARY, (batch, length + 1))

    def step(self) -> None:
        logits = self.model(self.ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self.ids[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def seconds(self, steps: int = 1) -> float:
        """Processor time of a step, the median of so many; the time of others on this machine is not in
        it."""
        return statistics.median(self._seconds() for _ in range(steps))

    def _seconds(self) -> float:
        began = time.process_time()
        self.step()
        return time.process_time() - began


def collectives() -> int:
    assert dist.group.WORLD is not None
    return int(dist.group.WORLD._get_sequence_number_for_group())


def attached(trainer: Trainer, run: Callable[[], float]) -> float:
    """``run`` with the shim in, past what it learns in its first step."""
    assert scoutd.shim.attach(trainer.model, replay_every=0)
    trainer.step()
    try:
        return run()
    finally:
        scoutd.shim.detach()


def cost_of_attachment(trainer: Trainer, rounds: int) -> float:
    """The median of neighbours' ratios; which of the two goes first alternates."""
    ratios = []
    for number in range(4 * rounds):
        if number % 2:
            without, inside = trainer.seconds(STRETCH), attached(trainer, lambda: trainer.seconds(STRETCH))
        else:
            inside, without = attached(trainer, lambda: trainer.seconds(STRETCH)), trainer.seconds(STRETCH)
        ratios.append(inside / without)
    return statistics.median(ratios)


def cost_of_replays(trainer: Trainer, rounds: int, every: int, variants: int) -> tuple[float, int]:
    """The step ratio, and collectives beyond training's."""
    assert scoutd.shim.attach(trainer.model, replay_every=1, replay_variants=1 << 10)
    assert session._session is not None
    replays = session._session.replays
    for _ in range(SPACING):
        trainer.step()  # every recipe is learnt and rehearsed
    replays.variants, replays.every = variants, SPACING
    turns = math.lcm(len(replays.roster.recipes), variants) // variants
    seconds, entered, made = [], [], []
    for _ in range((rounds * turns + 1) * SPACING - 1):
        replayed, before = replays.replays, collectives()
        seconds.append(trainer.seconds())
        entered.append(collectives() - before)
        made.append(replays.replays - replayed)
    assert scoutd.shim.status()["errors"] == {}
    scoutd.shim.detach()
    due = range(SPACING - 1, len(seconds), SPACING)
    assert made == [variants * (k in due) for k in range(len(seconds))], made
    around = [statistics.median(seconds[k - 2 : k] + seconds[k + 1 : k + 3]) for k in due]
    costs = [seconds[k] - near for k, near in zip(due, around, strict=True)]
    cost = statistics.mean(statistics.median(costs[turn::turns]) for turn in range(turns))
    more = sum(entered[k] - entered[k - 1] for k in due)
    return 1 + cost / (every * statistics.median(around)), more


def measure(options: argparse.Namespace) -> dict[str, float]:
    trainer = Trainer(options.blocks, options.width, options.batch, options.length)
    trainer.seconds(3)
    attachment = cost_of_attachment(trainer, options.rounds)
    replays, more = cost_of_replays(trainer, options.rounds, options.every, options.variants)
    model = options.variants / (options.every * options.blocks)
    return {
        "step_ratio_attached": round(attachment, 5),
        "step_ratio_replay": round(replays, 5),
        "model_ratio": round(1 + model, 5),
        "limit_ratio": round(1 + LIMIT * model, 5),
        "collectives_in_critical_path": more,
        "step_ms": round(trainer.seconds(5) * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (
        ("rounds", 6),
        ("blocks", 12),
        ("variants", 3),
        ("every", 20),
        ("width", 256),
        ("batch", 8),
        ("length", 64),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true", help="the JSON object only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SCOUTD_ROOT"] = str(Path(folder) / "scoutd")
        store = dist.FileStore(str(Path(folder) / "store"), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        result = measure(options)
        dist.destroy_process_group()
    if not options.json:
        for name, value in result.items():
            print(f"{name:32} {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
