"""A live agent with a healthy job: two ranks are here, published by the test, all others are elsewhere.

The rank files say what healthy ranks would say, again and again, so whatever verdict the agent reaches is
made of garbage. The agent lives on a host of its own (``hosts``): addresses that garbage makes it call lead
nowhere. It is talked to over its Unix socket, which serves peers too.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from scoutd.daemon.peer.seal import Membership
from scoutd.proto import shm
from tests.chaos.hosts import Host, company
from tests.e2e.harness import Verdict, until
from tests.unit.daemon_observe.writer import GROUP, HEADER, Writer, start_ticks

JOB = "prey-ab12"
KEY = bytes(range(32))
WORLD = 64
HERE = (0, 1)
"""Ranks of this node; all others would be elsewhere."""

BEAT_S = 0.1
FETCH = "from urllib.request import *; print(urlopen('http://127.0.0.1:9641/metrics').read().decode())"


class Ranks:
    """Rank files that are kept alive by a thread. ``folder`` is that of the job's generation."""

    def __init__(self, host: Host) -> None:
        self.folder = host.root / str(os.getuid()) / JOB / "1"
        now = time.monotonic_ns()
        self.header = HEADER._replace(
            pid=os.getpid(),
            start_ticks=start_ticks(os.getpid()),
            uid=os.getuid(),
            job=JOB,
            world_size=WORLD,
            local_world_size=len(HERE),
            run="",
            node=host.node,
            attached_ns=now,
        )
        self.writers = [
            Writer(self.folder / f"rank-{r}", self.header._replace(rank=r, local_rank=r)) for r in HERE
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live)
        for rank, writer in zip(HERE, self.writers, strict=True):
            writer.put(shm.DISCOVERY, shm.Discovery("", KEY.hex()))
            self.say(writer, rank, 1)
        self._thread.start()

    def say(self, writer: Writer, rank: int, beat: int) -> None:
        """The file says that its rank trains."""
        now = time.monotonic_ns()
        if beat == 1:
            group = GROUP._replace(my_index=rank, size=WORLD, created_ns=now, runs=((0, 1, WORLD),))
            writer.put(shm.GROUPS, group)
        writer.put(
            shm.PROGRESS, shm.Progress(beat, now, beat, beat, shm.Phase.FORWARD, 0, "layers.3 (Block)")
        )
        writer.put(shm.HEARTBEAT, shm.Heartbeat(now, beat, 0, 0, 0, 0, ""))

    def _live(self) -> None:
        for beat in itertools.count(2):
            for rank, writer in zip(HERE, self.writers, strict=True):
                self.say(writer, rank, beat)
            if self._stop.wait(BEAT_S):
                return

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for writer in self.writers:
            writer.close()


class Prey:
    """The agent under attack."""

    def __init__(self, host: Host, ranks: Ranks) -> None:
        assert host.agent is not None
        self.host = host
        self.ranks = ranks
        self.process = psutil.Process(host.agent.process.pid)
        self.target = f"unix:{host.runtime / 'agent.sock'}"

    def stranger(self, node: str = "host-9", key: bytes = KEY) -> Membership:
        return Membership(JOB, 1, node, (key,))

    def rss_mb(self) -> float:
        return float(self.process.memory_info().rss) / 2**20

    def alive(self) -> bool:
        return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE

    def job(self) -> dict[str, Any]:
        """What the agent says of the job, empty if it does not see it."""
        jobs = self.host.tell("status").get("jobs", [])
        return next((job for job in jobs if job["job"] == JOB), {})

    def verdicts(self) -> list[Verdict]:
        return self.host.verdicts()

    def counted(self, metric: str) -> float:
        """Sum over all label values of a metric of the agent."""
        text = self.host.start(sys.executable, "-S", "-c", FETCH).finish(20.0).out
        lines = [line for line in text.splitlines() if line.startswith(metric)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextmanager
def prey() -> Iterator[Prey]:
    with company(1) as lone:
        host = lone.hosts[0]
        lone.start_agents("--bind", "127.0.0.1", "--log-level", "error")
        ranks = Ranks(host)
        try:
            made = Prey(host, ranks)
            until(lambda: made.job().get("members"), "an agent that takes part in the exchange")
            yield made
        finally:
            ranks.close()
