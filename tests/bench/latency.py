"""From the last sign of progress to the verdict: how late after the stall timeout is it CONFIRMED?

Real jobs of 4 ranks under ``scoutd run``, one of which sleeps for ever in its forward pass, backward pass,
DataLoader or own code, another one each time. With ``--nodes N`` jobs of 2 ranks for each of N agents, all
of which count. ``late_s`` is the detection latency less the stall timeout.
``python tests/bench/latency.py [--runs N] [--nodes N] [--json]``; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too
import statistics

from tests.e2e.harness import Site, Verdict, forked, named
from tests.e2e.test_nodes import Cluster

FAULTS = ("sleep-forward", "sleep-backward", "sleep-between", "sleep-input")
STALL_TIMEOUT_S = 5.0


def one(k: int) -> list[Verdict]:
    """The verdict about one hang."""
    with Site() as site:
        outcome = site.run(forked("--fault", FAULTS[k % len(FAULTS)], "--rank", str(k % 4)))
    (verdict,) = outcome.faults
    return [verdict]


def on_nodes(k: int, nodes: int) -> list[Verdict]:
    """The verdicts of all agents about one hang."""
    job = ("--fault", FAULTS[k % len(FAULTS)], "--rank", str(k % (2 * nodes)), "--steps", "40")
    with Site() as site:
        cluster = Cluster(site, nodes, 2 * nodes, *job)
        cluster.agreed(nodes)
        found = list(cluster.confirmed().values())
        cluster.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object")
    asked = parser.parse_args()
    late: list[float] = []
    right = 0
    for k in range(asked.runs):
        rank = k % (2 * asked.nodes if asked.nodes > 1 else 4)
        found = one(k) if asked.nodes == 1 else on_nodes(k, asked.nodes)
        seconds = [v["detection_latency_ms"] / 1000 - STALL_TIMEOUT_S for v in found]
        late += seconds
        right += all(named(v) == [rank] for v in found)
        if not asked.json:
            print(f"{FAULTS[k % len(FAULTS)]:15} rank {rank}: {max(seconds):.2f} s after the timeout")
    late.sort()
    result = {
        "runs": asked.runs,
        "agents": asked.nodes,
        "right": right,
        "late_p50_s": round(statistics.median(late), 3),
        "late_p95_s": round(late[min(len(late) - 1, int(0.95 * len(late)))], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
