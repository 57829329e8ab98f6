"""What an agent costs while nothing is wrong: CPU time, and bytes on its network interface.

    python tests/bench/idle.py [--peers 64] [--ranks 8] [--seconds 60] [--json]

One real agent process with healthy ranks (``agent_cost``) lives in a network namespace of its own; its peers,
agents of the same job (``scale``), live in a second one, all in one process. So everything that crosses the
agent's interface is the exchange, and the kernel's counters of the interface see all of it: names, sessions,
acknowledgements, headers from Ethernet upwards. Needs root (``tests/chaos/hosts``).

Keys: ``cpu_percent`` of one core; ``bytes_per_s_out`` and ``bytes_per_s_in``; ``rss_mb``; ``agents``, the
measured one included.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too

from scoutd.agent.settings import Settings
from scoutd.daemon import log
from scoutd.daemon.clock import monotonic_ns
from tests.bench.agent_cost import trainers
from tests.bench.hungjob import RANKS_PER_NODE, HungJob
from tests.bench.scale import BenchAgent, until
from tests.chaos.hosts import Network

RUN = "idle"
JOB = f"job-{RUN}"
SECRET = bytes(range(32))
SETTLE_S = 10.0
DEADLINE_S = 120.0
PEER_INTERVAL_S = 1.0


async def be_peers(count: int, address: str, folder: Path) -> None:
    """``count`` agents live here; ``seed`` tells the first one's address, ``known`` that all know all."""
    text = f"scoutd job key\0{JOB}\0{1}".encode()
    job = HungJob(count + 1, monotonic_ns, JOB, (hmac.new(SECRET, text, hashlib.sha256).digest(),))
    agents = [BenchAgent(job, n + 1, Settings(), address, PEER_INTERVAL_S) for n in range(count)]
    stop = asyncio.Event()
    tasks = [asyncio.create_task(agents[0].run(stop))]
    await until(lambda: bool(agents[0].neighbours.address), "a peer listens")
    job.seeds = (agents[0].neighbours.address,)
    write(folder / "seed", job.seeds[0])
    for agent in agents[1:]:
        tasks.append(asyncio.create_task(agent.run(stop)))
        await asyncio.sleep(0.05)
    await until(lambda: all(agent.peers == count for agent in agents), "all know all")
    write(folder / "known", "all")
    await asyncio.gather(*tasks)


def write(path: Path, text: str) -> None:
    """The file is there, whole."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"there is no {path.name}")
        time.sleep(0.05)
    return path.read_text()


@contextlib.contextmanager
def inside(network: Network, host: int, *command: str, **environment: str) -> Iterator[psutil.Process]:
    """The command runs on this host."""
    where = f"--net=/run/netns/{network.names[host]}"
    child = subprocess.Popen(["nsenter", where, "--", *command], env=os.environ | environment)
    try:
        yield psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait()


@contextlib.contextmanager
def agent(network: Network, root: Path, folder: Path, seed: str) -> Iterator[psutil.Process]:
    """The agent that is measured."""
    (folder / "key").write_bytes(SECRET)
    command = ["-m", "scoutd.daemon", "--node", "measured", "--run", RUN, "--root", str(root)]
    places = {
        "SCOUTD_ADVERTISE": network.address(0),
        "SCOUTD_PEERS_ADDRESSES": seed,
        "SCOUTD_PEERS_KEY_FILE": str(folder / "key"),
        "SCOUTD_RUNTIME_DIR": str(folder),
    }
    with inside(network, 0, sys.executable, *command, "--log-level", "error", **places) as process:
        yield process


def counters(network: Network) -> tuple[int, int]:
    """Bytes that the agent's host has (sent, received) since it is there."""
    where = f"--net=/run/netns/{network.names[0]}"
    table = subprocess.run(
        ["nsenter", where, "cat", "/proc/net/dev"], check=True, capture_output=True, text=True
    )
    (line,) = (line for line in table.stdout.splitlines() if line.strip().startswith("eth0:"))
    fields = line.split(":")[1].split()
    return int(fields[8]), int(fields[0])


def measure(peers: int, ranks: int, seconds: float, scratch: Path) -> dict[str, float]:
    """The numbers."""
    root, folder = scratch / RUN, scratch / "run"
    folder.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network(2))
        stack.enter_context(trainers(root, RUN, ranks, 0.05, (peers + 1) * RANKS_PER_NODE))
        others = [sys.executable, __file__, "--be", str(peers), network.address(1), str(folder)]
        stack.enter_context(inside(network, 1, *others))
        process = stack.enter_context(agent(network, root, folder, wait_for(folder / "seed")))
        wait_for(folder / "known")
        time.sleep(SETTLE_S)
        cpu, wire, began = cpu_s(process), counters(network), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        sent, received = (b - a for a, b in zip(wire, counters(network), strict=True))
        return {
            "agents": peers + 1,
            "cpu_percent": round(100 * (cpu_s(process) - cpu) / took, 3),
            "bytes_per_s_out": round(sent / took),
            "bytes_per_s_in": round(received / took),
            "rss_mb": round(process.memory_info().rss / 1e6, 1),
        }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    if sys.argv[1:2] == ["--be"]:
        count, address, folder = sys.argv[2:]
        log.configure("error", "json")
        asyncio.run(be_peers(int(count), address, Path(folder)))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the output is JSON")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scoutd-bench-", dir="/dev/shm") as scratch:
        print(json.dumps(measure(asked.peers, asked.ranks, asked.seconds, Path(scratch))))


if __name__ == "__main__":
    main()
