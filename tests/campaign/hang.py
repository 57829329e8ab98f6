"""Randomised hangs in real jobs: is the right rank named, and nobody else?

Each seed chooses a layout, a world size of 3 to 6, a rank, a step and a place (forward, backward, optimizer
step); the job runs under ``scoutd run`` with a stall timeout of 5 s. ``right``: that rank alone was named;
``missed``: no verdict; ``innocent``: somebody else was named. Latencies are from the last sign of progress
to the verdict. ``python tests/campaign/hang.py --seeds 60 [--first S] [--json]``; the last line is one JSON
object. A seed repeats its case.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.e2e.harness import Site, forked, named

SIZES = {"ddp": (3, 4, 5, 6), "dp-tp": (4, 6), "pp-dp": (4, 6), "fsdp2": (3, 4, 5), "hsdp": (4, 6)}
PLACES = ("forward", "backward", "optimizer")


@dataclass(frozen=True)
class Case:
    """One seed's choice."""

    seed: int
    layout: str
    world: int
    rank: int
    step: int
    place: str

    @property
    def command(self) -> list[str]:
        common = ["--rank", str(self.rank), "--step", str(self.step)]
        if self.layout == "ddp":
            place = "between" if self.place == "optimizer" else self.place
            return forked("--fault", f"sleep-{place}", *common, ranks=self.world)
        layout = ["--layout", self.layout, "--place", self.place]
        return forked(*layout, *common, ranks=self.world, script="layouts.py")


@dataclass(frozen=True)
class Result:
    """``latency_s`` is None where there was no verdict."""

    names: tuple[int, ...]
    latency_s: float | None


def choose(seed: int) -> Case:
    dice = random.Random(seed)
    layout = dice.choice(sorted(SIZES))
    world = dice.choice(SIZES[layout])
    return Case(seed, layout, world, dice.randrange(world), dice.randrange(1, 6), dice.choice(PLACES))


def run(case: Case) -> Result:
    """The case has run; what was named, and how late."""
    with Site() as site:
        outcome = site.run(case.command, deadline_s=180.0)
    names = sorted({rank for verdict in outcome.faults for rank in named(verdict)})
    latencies = [verdict["detection_latency_ms"] / 1000 for verdict in outcome.faults]
    return Result(tuple(names), min(latencies, default=None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object")
    asked = parser.parse_args()
    count = {"right": 0, "missed": 0, "innocent": 0}
    latencies: list[float] = []
    for seed in range(asked.first, asked.first + asked.seeds):
        case = choose(seed)
        result = run(case)
        fate = "right" if result.names == (case.rank,) else "innocent" if result.names else "missed"
        count[fate] += 1
        if result.latency_s is not None:
            latencies.append(result.latency_s)
        if not asked.json or fate != "right":
            print(f"{fate}: {case} named {list(result.names)}", file=sys.stderr, flush=True)
    latencies.sort()
    late = latencies[min(len(latencies) - 1, int(0.95 * len(latencies)))] if latencies else 0.0
    middle = statistics.median(latencies) if latencies else 0.0
    print(json.dumps({**count, "latency_p50_s": round(middle, 2), "latency_p95_s": round(late, 2)}))


if __name__ == "__main__":
    main()
