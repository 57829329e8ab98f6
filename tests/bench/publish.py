"""What publication costs the trainer, in microseconds: medians over many repetitions.

``coordinate_us``: one progress coordinate. ``hook_us``: a hooked block's call minus the bare one's (pre-hook
and post-hook, training mode). ``collective_us_N``: a collective in a group of N, publication before and
closing after it, without the call itself. ``--json`` prints one JSON object as the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too
import statistics

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from scoutd.shim.calls import Calls
from scoutd.shim.collectives import Publication
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.groups import Groups
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Undo
from scoutd.shim.modules import FORWARD, watch_root
from scoutd.shim.shmfile import ShmFile
from scoutd.shim.signatures import COLLECTIVES
from scoutd.shim.works import Works

ROUNDS = 101
BURSTS = 5
CALLS_PER_BURST = 30
LIMITS = {
    "coordinate_us": 2.0,
    "hook_us": 5.0,
    "collective_us_8": 10.0,
    "collective_us_1024": 10.0,
    "collective_us_8192": 10.0,
}


def burst_us(action: Callable[[], object]) -> float:
    """Mean time of one call in the quickest of a few short bursts: what else runs on the machine is not
    the shim's cost."""
    best = float("inf")
    for _ in range(BURSTS):
        started = time.perf_counter_ns()
        for _ in range(CALLS_PER_BURST):
            action()
        best = min(best, (time.perf_counter_ns() - started) / CALLS_PER_BURST / 1000)
    return best


def median_us(action: Callable[[], object]) -> float:
    """Median over rounds of bursts."""
    action()
    return statistics.median(burst_us(action) for _ in range(ROUNDS))


def coordinate_us(coordinates: Coordinates) -> float:
    writer = coordinates.writer
    operation = encode("layers.3 (Block)")
    return median_us(lambda: coordinates.publish(writer, FORWARD, operation, 0))


class Block(torch.nn.Module):
    """Costs next to nothing, so that the difference is the hooks'."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(4)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Block(), Block()])


def hook_us(coordinates: Coordinates) -> float:
    """Bare and hooked calls are timed in turn, so that a change of the machine's pace hits both."""
    bare, hooked = Net(), Net()
    watch_root(hooked, coordinates, Guard(), Undo())
    coordinates.enter_hooked(coordinates.writer, FORWARD, encode("Net"))
    x = torch.ones(4, requires_grad=True)
    differences = []
    for _ in range(ROUNDS):
        plain = burst_us(lambda: bare.layers[0](x))
        differences.append(burst_us(lambda: hooked.layers[0](x)) - plain)
    return statistics.median(differences)


def collective_us(file: ShmFile, coordinates: Coordinates, size: int) -> float:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        calls = Calls(file)
        publication = Publication(Groups(file), calls, Works(calls, coordinates), coordinates)
        spec = COLLECTIVES["all_reduce"]
        tensor = torch.ones(16)

        def publish() -> None:
            given = {"tensor": tensor, "op": c10d.ReduceOp.SUM}
            published = publication.begin_collective(coordinates.writer, spec, given)
            assert published is not None
            publication.end(published, None)

        return median_us(publish)
    finally:
        dist.destroy_process_group()


def measure(root: Path) -> dict[str, float]:
    file = ShmFile(root)
    coordinates = Coordinates(file)
    try:
        found = {"coordinate_us": coordinate_us(coordinates), "hook_us": hook_us(coordinates)}
        for size in (8, 1024, 8192):
            found[f"collective_us_{size}"] = collective_us(file, coordinates, size)
    finally:
        file.remove()
        file.close()
    return {name: round(value, 3) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="last line of output is one JSON object")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        found = measure(Path(folder) / "scoutd")
    for name, value in found.items():
        print(f"{name:22} {value:8.2f} us   limit {LIMITS[name]:.0f}")
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
