"""What an agent costs while it watches healthy ranks: prints one JSON object as its last line.

    python tests/bench/agent_cost.py [--ranks 8] [--cpu-ranks 4] [--seconds 60] [--interval 0.05]

Ranks are small processes that publish as the shim does (lock, heartbeat at 1 Hz, a coordinate every
``--interval`` seconds, a group with its counters), without torch, so that nothing but the agent is measured.

Keys: ``ready_s`` from the start of the process to its endpoint file, median of three starts; ``rss_mb`` with
``--ranks`` ranks; ``cpu_ratio`` CPU time per wall time over ``--seconds`` with ``--cpu-ranks`` ranks.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too
import statistics

from scoutd.proto import shm

READY_DEADLINE_S = 30.0
SETTLE_S = 2.0


def publish(root: Path, job: str, run: str, rank: int, local: int, world: int, interval_s: float) -> None:
    """Publishes until it is killed, as one healthy rank of a node with ``local`` of the ``world`` ranks."""
    path = root / str(os.getuid()) / job / "1" / f"rank-{rank}"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, shm.FILE_SIZE)
    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    file = mmap.mmap(descriptor, shm.FILE_SIZE)
    view = memoryview(file)
    words = view.cast("Q")
    now = time.monotonic_ns()
    shm.write(
        view,
        words,
        shm.HEADER,
        0,
        1,
        shm.Header(
            pid=os.getpid(),
            start_ticks=_start_ticks(),
            attached_ns=now,
            generation=1,
            uid=os.getuid(),
            rank=rank,
            world_size=world,
            local_rank=rank,
            local_world_size=local,
            job=job,
            run=run,
            launcher_id="",
            node="bench",
            device="cpu",
            backend="gloo",
            python="",
            torch="",
        ),
    )
    shm.write(
        view,
        words,
        shm.GROUPS,
        0,
        1,
        shm.Group(
            group=1,
            created_ns=now,
            size=world,
            my_index=rank,
            destroyed=0,
            truncated=0,
            name="default_pg",
            description="",
            backend="gloo",
            runs=((0, 1, world),),
        ),
    )
    view[: shm.PREFIX.size] = shm.prefix()
    _train(view, words, interval_s)


def _train(view: memoryview, words: memoryview, interval_s: float) -> None:
    beats = 0
    for step in range(1, 1 << 40):
        now = time.monotonic_ns()
        if now // 1_000_000_000 >= beats:
            beats = now // 1_000_000_000 + 1
            shm.write(
                view, words, shm.HEARTBEAT, 0, step, shm.Heartbeat(now, step, 0, step * 100, step, 0, "")
            )
        shm.write(
            view,
            words,
            shm.PROGRESS,
            0,
            step,
            shm.Progress(1, now, step, step, shm.Phase.FORWARD, 0, "blocks.3"),
        )
        shm.write(view, words, shm.COUNTERS, 0, step, shm.Counters(1, step, step, now))
        time.sleep(interval_s)


def _start_ticks() -> int:
    """Field 22 of /proc/self/stat; the fields after the name's closing parenthesis begin with the third."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


@contextmanager
def trainers(root: Path, run: str, count: int, interval_s: float, world: int = 0) -> Iterator[None]:
    """``count`` ranks publish, of ``world`` that the job has; 0: there are no others."""
    command = [sys.executable, __file__, "--publish", str(root), run]
    sizes = [str(count), str(world or count), str(interval_s)]
    children = [subprocess.Popen([*command, str(rank), *sizes]) for rank in range(count)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


@contextmanager
def agent(root: Path, runtime: Path, run: str) -> Iterator[tuple[psutil.Process, float]]:
    """A private agent, ready, and the seconds that it took."""
    endpoint = runtime / f"run-{run}.sock.json"
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "scoutd.daemon", "--run", run, "--root", str(root), "--log-level", "error"],
        env=os.environ | {"SCOUTD_RUNTIME_DIR": str(runtime)},
    )
    try:
        while not endpoint.exists():
            if child.poll() is not None or time.monotonic() - began > READY_DEADLINE_S:
                raise SystemExit("the agent did not become ready")
            time.sleep(0.002)
        yield psutil.Process(child.pid), time.monotonic() - began
    finally:
        child.terminate()
        child.wait()


@contextmanager
def watched(root: Path, runtime: Path, count: int, interval_s: float) -> Iterator[psutil.Process]:
    """An agent that has been watching ``count`` ranks for a while: its own metrics say so."""
    run = root.name
    with trainers(root, run, count, interval_s), agent(root, runtime, run) as (process, _):
        time.sleep(SETTLE_S)
        port = json.loads((runtime / f"run-{run}.sock.json").read_text())["http_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            seen = answer.read().decode()
        if f'scoutd_ranks_observed{{job="job-{run}",state="observed"}} {float(count)}' not in seen:
            raise SystemExit(f"the agent does not see {count} ranks")
        yield process


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure(arguments: argparse.Namespace, scratch: Path) -> dict[str, float]:
    """The three numbers."""
    runtime = scratch / "run"
    runtime.mkdir(mode=0o700)
    starts = []
    for number in range(3):
        with agent(scratch / "empty", runtime, f"start{number}") as (_, ready_s):
            starts.append(ready_s)
    with watched(scratch / "many", runtime, arguments.ranks, arguments.interval) as process:
        rss = process.memory_info().rss
    with watched(scratch / "few", runtime, arguments.cpu_ranks, arguments.interval) as process:
        before, began = _cpu_s(process), time.monotonic()
        time.sleep(arguments.seconds)
        ratio = (_cpu_s(process) - before) / (time.monotonic() - began)
    return {
        "ready_s": round(statistics.median(starts), 3),
        "rss_mb": round(rss / 1e6, 1),
        "cpu_ratio": round(ratio, 5),
        "ranks": arguments.ranks,
        "cpu_ranks": arguments.cpu_ranks,
    }


def main() -> None:
    if sys.argv[1:2] == ["--publish"]:
        root, run, rank, local, world, interval_s = sys.argv[2:]
        publish(Path(root), f"job-{run}", run, int(rank), int(local), int(world), float(interval_s))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--cpu-ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=0.05)
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the output is JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scoutd-bench-", dir="/dev/shm") as scratch:
        print(json.dumps(measure(arguments, Path(scratch))))


if __name__ == "__main__":
    main()
