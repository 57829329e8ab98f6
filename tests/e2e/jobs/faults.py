"""What goes wrong in a test job, and where: one function per fault, each tied to a place in the step.

``train.py`` calls ``fault.at(place)`` wherever something can go wrong; a fault fires once, on its rank, at
its step (or at the first step after the file ``--when`` has appeared). Kinds that end in ``all`` fire on
every rank.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

import torch
import torch.distributed as dist

FOREVER_S = 1_000_000


def sleep() -> None:
    time.sleep(FOREVER_S)


def spin() -> None:
    while True:
        pass


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hold_interpreter() -> None:
    """Sleeps in C without releasing the interpreter lock: no Python thread of this process runs."""
    ctypes.PyDLL(None).sleep(FOREVER_S)


def fail() -> None:
    raise ValueError("bad batch 17")  # fault: raise


def leave() -> None:
    sys.exit(9)


class SlowFile:
    """A file object on slow storage: every write of torch.save takes its time."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def write(self, data: bytes) -> int:
        pause = min(self.left, 1.0)
        self.left -= pause
        time.sleep(pause)
        return len(data)

    def flush(self) -> None:
        time.sleep(max(self.left, 0.0))
        self.left = 0.0


def save_slowly() -> None:
    file = SlowFile(12.0)
    torch.save({f"weight.{i}": torch.ones(1024) for i in range(16)}, file)
    file.flush()


def save_in_one_write() -> None:
    """The same, but silent: a single write that does not return for twelve seconds."""

    class Frozen(SlowFile):
        def write(self, data: bytes) -> int:
            self.flush()
            return len(data)

    torch.save({"weight": torch.ones(1024)}, Frozen(12.0))


def write_raw() -> None:
    """A checkpoint that no library call announces: only the bytes tell."""
    with TemporaryFile() as file:
        for _ in range(120):
            file.write(os.urandom(100_000))
            file.flush()
            time.sleep(0.1)


def compile_slowly() -> None:
    def backend(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> Callable[..., object]:
        time.sleep(10.0)
        return graph.forward

    torch.compile(lambda x: x * 2 + 1, backend=backend)(torch.ones(8))


def pause() -> None:
    time.sleep(8.0)


PLACES: dict[str, tuple[str, Callable[[], None]]] = {
    "sleep-forward": ("forward", sleep),
    "sleep-backward": ("backward", sleep),
    "sleep-between": ("between", sleep),
    "sleep-input": ("input", sleep),
    "spin": ("forward", spin),
    "kill": ("forward", kill),
    "kill-between": ("between", kill),
    "raise": ("forward", fail),
    "raise-between": ("between", fail),
    "leave": ("between", leave),
    "stop": ("forward", stop),
    "gil": ("forward", hold_interpreter),
    "save": ("between", save_slowly),
    "save-frozen": ("between", save_in_one_write),
    "write": ("between", write_raw),
    "compile": ("between", compile_slowly),
    "pause-all": ("between", pause),
}
"""Faults of one rank by its own doing: where, and what it does."""

METRICS = {"metric", "metric-broadcast", "metric-smaller", "metric-larger"}
"""Faults of one rank against the others: its part of a per-step all_reduce of 1024 numbers differs."""


class Fault:
    """One fault of one rank. ``when`` empty: at ``step``; else at the first step after that file exists."""

    def __init__(self, options: Namespace, rank: int) -> None:
        self.kind: str = options.fault
        self.here = rank == options.rank or self.kind.endswith("all")
        self.step: int = options.step
        self.when: str = options.when
        self.now = 0
        self.fired = False

    def armed(self) -> bool:
        due = Path(self.when).exists() if self.when else self.now == self.step
        return self.here and not self.fired and due

    def at(self, place: str) -> None:
        where, act = PLACES.get(self.kind, ("", sleep))
        if where == place and self.armed():
            self.fired = True
            act()

    def reduce_metric(self) -> None:
        """The per-step metric of jobs whose fault is a mismatch; other jobs have none."""
        if self.kind not in METRICS:
            return
        sizes = {"metric-smaller": 768, "metric-larger": 1536}
        armed = self.armed()
        numbers = torch.ones(sizes.get(self.kind, 1024) if armed else 1024)
        if armed and self.kind == "metric-broadcast":
            dist.broadcast(numbers, src=dist.get_rank())
        else:
            dist.all_reduce(numbers)


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--fault", default="", choices=["", *PLACES, *sorted(METRICS)])
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=4)
    parser.add_argument("--when", default="")
