"""From the last sign of progress to the verdict: how late after the stall timeout is it CONFIRMED?

Real jobs of 4 ranks under ``scoutd run``, one of which sleeps for ever in its forward pass, backward pass,
DataLoader or own code, another one each time. ``late_s`` is the detection latency less the stall timeout.
``python tests/bench/latency.py [--runs N] [--json]``; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too
import statistics

from tests.e2e.harness import Site, forked

FAULTS = ("sleep-forward", "sleep-backward", "sleep-between", "sleep-input")
STALL_TIMEOUT_S = 5.0


def one(k: int) -> tuple[float, bool]:
    """(seconds after the stall timeout, the right rank alone) of one hang."""
    rank = k % 4
    with Site() as site:
        outcome = site.run(forked("--fault", FAULTS[k % len(FAULTS)], "--rank", str(rank)))
    (verdict,) = outcome.faults
    right = [i.get("rank", 0) for i in verdict["implicated"]] == [rank]
    return verdict["detection_latency_ms"] / 1000 - STALL_TIMEOUT_S, right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print nothing but the JSON object")
    asked = parser.parse_args()
    late: list[float] = []
    right = 0
    for k in range(asked.runs):
        seconds, named = one(k)
        late.append(seconds)
        right += named
        if not asked.json:
            print(f"{FAULTS[k % len(FAULTS)]:15} rank {k % 4}: {seconds:.2f} s after the timeout")
    late.sort()
    result = {
        "runs": asked.runs,
        "right": right,
        "late_p50_s": round(statistics.median(late), 3),
        "late_p95_s": round(late[min(len(late) - 1, int(0.95 * len(late)))], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
