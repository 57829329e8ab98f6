"""How well sketches of replay times stand for the times, in peer groups that span nodes.

``asked``: share of rounds of a healthy group after which its agents exchange times in vain; ``missed``: ranks
1.2 times as slow, at 2 % jitter, that are not suspected in the third round; ``bytes``: of a round's sketch in
a message. ``--json`` prints one JSON object as the last line; ``--quick`` takes a tenth of the samples.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too

from scoutd.agent.replay import RoundKey
from scoutd.agent.slowness import Slowness
from scoutd.agent.tally import Camp, Tally, salt_of
from scoutd.agent.timesketch import code_of, merged
from scoutd.daemon.peer.tallycodec import write_tallies

SIZES = (3, 4, 8, 64, 512, 4096)
MODULE_NS = 5_000_000
RANK_ROUNDS = 1_000_000
"""Rounds times ranks, of every size."""
MOST_ROUNDS = 20_000
TRIALS = 500


def tally(chance: random.Random, key: int, size: int, jitter: float, factor: float = 1.0) -> Tally:
    """One round in which all agree; rank 1 is slower by ``factor``."""
    at = RoundKey(1, 2, key, 1)
    times = [MODULE_NS * max(0.2, chance.gauss(1, jitter)) for _ in range(size)]
    times[1] *= factor
    sketch = merged(salt_of(at), ((rank, code_of(int(time))) for rank, time in enumerate(times)))
    return Tally(1, 2, key, 1, size, (Camp(4, ((0, size),)),), sketch)


def asks(slowness: Slowness, told: Tally) -> bool:
    slowness.take(told)
    return bool(slowness.slow(told.at)) and bool(slowness.suspect(told.at))


def asked(chance: random.Random, size: int, jitter: float, rounds: int) -> float:
    slowness, count = Slowness(), 0
    for key in range(1, rounds + 1):
        told = tally(chance, key, size, jitter)
        if asks(slowness, told):
            count += 1
            slowness.settle(told.at, confirmed=False)
    return count / rounds


def missed(chance: random.Random, size: int, trials: int) -> float:
    count = 0
    for _ in range(trials):
        slowness = Slowness()
        count += not any(asks(slowness, tally(chance, key, size, 0.02, 1.2)) for key in (1, 2, 3))
    return count / trials


def bytes_of(told: Tally) -> int:
    plain = told._replace(times=())
    return write_tallies([told])[0].ByteSize() - write_tallies([plain])[0].ByteSize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="last line of output is one JSON object")
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance, share = random.Random(args.seed), 10 if args.quick else 1
    rows = []
    print("    N   asked at 5 %   missed at 2 %   bytes")
    for size in SIZES:
        rounds = min(MOST_ROUNDS, RANK_ROUNDS // size) // share
        row = {
            "size": size,
            "asked": asked(chance, size, 0.05, rounds),
            "missed": missed(chance, size, max(10, min(TRIALS, RANK_ROUNDS // (3 * size)) // share)),
            "bytes": bytes_of(tally(chance, 1, size, 0.05)),
        }
        rows.append(row)
        print(f"{size:5} {row['asked']:13.3%} {row['missed']:15.2%} {row['bytes']:7}", flush=True)
    if args.json:
        worst = {name: max(row[name] for row in rows) for name in ("asked", "missed", "bytes")}
        print(json.dumps({**worst, "rows": rows}))


if __name__ == "__main__":
    main()
