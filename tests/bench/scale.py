"""How long until all agents of a large job hold the same verdict, over real gRPC, in one process.

    python tests/bench/scale.py --agents 128 [--timeout 30] [--json]

Every agent is a daemon's main loop with its parties, codec, client and listener on a port of its own; only
shared memory is replaced, by ``hungjob``. The agents find each other through three seeds, the job runs for a
while, then one rank of the middle node hangs. All agents share one interpreter, so that one core does the
work that otherwise that many machines do.

The last line is one JSON object. ``seconds_to_all``: from the stall timeout until every agent holds the
CONFIRMED verdict under one id; ``seconds_suspicious`` counts from the moment at which the stall is suspicious
(a quarter of ``--timeout``). ``premature``: verdicts on the way there that name nobody, or not the rank.
``bytes_per_agent``: mean of what an agent has sent meanwhile, in sealed messages. ``cpu_s``: CPU time of the
process meanwhile; ``rss_mb``: its size at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too

from scoutd.agent.core import WATCH_SHARE
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.agent.verdict import State, Verdict
from scoutd.daemon import garbage, log
from scoutd.daemon.clock import Stamps, monotonic_ns
from scoutd.daemon.config import ObserveSection
from scoutd.daemon.hooks import VerdictHook
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.loop import Loop
from scoutd.daemon.peer.neighbours import Neighbours
from scoutd.daemon.peer.parties import JobParty
from scoutd.daemon.peer.plan import PeerPlan
from scoutd.daemon.reporter import Reporter
from scoutd.daemon.sdnotify import Notifier
from scoutd.daemon.seams import CorePort
from scoutd.daemon.serve.metrics import Metrics
from scoutd.daemon.watchers import Watchers
from tests.bench.hungjob import RANKS_PER_NODE, HungJob, NodeObserver

SEEDS = 3
BATCH = 16
POLL_S = 0.05
POLL_S_PER_AGENT = 0.0005
"""Looking at all agents costs them time, too."""

DEADLINE_S = 300.0


class BenchAgent:
    """An agent as ``daemon.lifecycle`` wires it, without HTTP, queries and signals. ``address``: its host."""

    def __init__(
        self,
        job: HungJob,
        number: int,
        settings: Settings,
        address: str = "127.0.0.1",
        interval_s: float = 0.25,
    ) -> None:
        self.job = job
        self.settings = settings
        self.party: JobParty | None = None
        observer = NodeObserver(job, number)
        self.metrics = Metrics(lambda: self.loop.jobs.values(), monotonic_ns, "0", "3")
        self.neighbours = Neighbours(
            PeerPlan(advertise=address),
            observer.name,
            1,
            self.metrics.traffic,
            monotonic_ns,
            lambda: self.loop.wake(),
            lambda error: self.loop.failed_peer(error),
            lambda address: None,
        )
        reporter = Reporter(Ledger(None), Watchers(), self.metrics, VerdictHook("", 1.0), Stamps())
        self.loop = Loop(
            observer,
            self._admit,
            reporter,
            Notifier({}),
            monotonic_ns,
            ObserveSection(interval_s=interval_s),
            self.neighbours,
        )

    def _admit(self, name: str) -> JobParty:
        self.party = self.neighbours.admit(name, self.settings, ExchangeSettings())
        return self.party

    @property
    def peers(self) -> int:
        """Other agents whose existence is known."""
        return len(self.party.exchange.replica.entries) - 1 if self.party is not None else 0

    @property
    def confirmed(self) -> list[Verdict]:
        return [v for v in self.core.verdicts if v.state is State.CONFIRMED]

    @property
    def core(self) -> CorePort:
        return self.loop.jobs[self.job.name].core

    async def run(self, stop: asyncio.Event) -> None:
        self.neighbours.open("", 0)
        await self.loop.run(stop)
        await self.loop.close()
        await self.neighbours.close()


class Cluster:
    """All agents. ``notes`` are written to standard error."""

    def __init__(self, agents: int, timeout_s: float) -> None:
        self.settings = Settings(stall_timeout_s=timeout_s)
        self.job = HungJob(agents, monotonic_ns)
        self.agents = [BenchAgent(self.job, number, self.settings) for number in range(agents)]
        self.stop = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, quiet_s: float) -> None:
        """All agents know each other, and the job has been healthy for a while."""
        garbage.settle()
        for number, agent in enumerate(self.agents):
            self.tasks.append(asyncio.create_task(agent.run(self.stop)))
            if number < SEEDS:
                await until(lambda agent=agent: bool(agent.neighbours.address), "a seed listens")
                self.job.seeds = (*self.job.seeds, agent.neighbours.address)
            if number % BATCH == BATCH - 1:
                batch = self.agents[number - BATCH + 1 : number + 1]
                await until(lambda batch=batch: all(agent.peers for agent in batch), "they found somebody")
        others = len(self.agents) - 1
        await until(lambda: all(agent.peers == others for agent in self.agents), "all know all")
        note(f"{len(self.agents)} agents know each other")
        await asyncio.sleep(quiet_s)

    def agreed(self) -> bool:
        """Every agent has confirmed one verdict, the same, and it names the culprit."""
        found = [agent.confirmed for agent in self.agents]
        if not all(len(verdicts) == 1 for verdicts in found) or len({v.id for (v,) in found}) != 1:
            return False
        return [i.rank for i in found[0][0].implicated] == [self.job.culprit]

    async def close(self) -> None:
        self.stop.set()
        for agent in self.agents:
            agent.loop.wake()
        await asyncio.gather(*self.tasks)


async def until(condition: Callable[[], bool], what: str, every_s: float = POLL_S) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > DEADLINE_S:
            raise SystemExit(f"never: {what}")
        await asyncio.sleep(every_s)


async def measure(agents: int, timeout_s: float, quiet_s: float) -> dict[str, object]:
    """The numbers of one hang."""
    cluster = Cluster(agents, timeout_s)
    await cluster.start(quiet_s)
    process = psutil.Process()
    cluster.job.hung_ns = monotonic_ns()
    await asyncio.sleep(timeout_s * WATCH_SHARE)
    began, cpu = time.monotonic(), cpu_s(process)
    sent = sum(agent.metrics.traffic.bytes_out for agent in cluster.agents)
    every_s = max(POLL_S, POLL_S_PER_AGENT * agents)
    await until(cluster.agreed, "all agents hold the verdict", every_s)
    took = time.monotonic() - began
    result = {
        "agents": agents,
        "ranks": agents * RANKS_PER_NODE,
        "seconds_to_all": round(took - timeout_s * (1 - WATCH_SHARE), 2),
        "seconds_suspicious": round(took, 2),
        "premature": sum(len(agent.core.verdicts) - 1 for agent in cluster.agents),
        "bytes_per_agent": (sum(a.metrics.traffic.bytes_out for a in cluster.agents) - sent) // agents,
        "cpu_s": round(cpu_s(process) - cpu, 2),
        "rss_mb": round(process.memory_info().rss / 1e6, 1),
    }
    await cluster.close()
    requests: Counter[tuple[str, str]] = Counter()
    for agent in cluster.agents:
        requests.update(agent.metrics.traffic.requests)
    note(f"requests: {dict(requests)}")
    return result


def raise_file_limit() -> None:
    """Both ends of every connection are in this process: some twenty for every agent."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def note(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        help="the stall timeout in seconds; 30 is the default of the agent",
    )
    parser.add_argument("--quiet", type=float, default=12.0, help="seconds of health before the hang")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the output is JSON")
    asked = parser.parse_args()
    log.configure("error", "json")
    raise_file_limit()
    print(json.dumps(asyncio.run(measure(asked.agents, asked.timeout, asked.quiet))))


if __name__ == "__main__":
    main()
