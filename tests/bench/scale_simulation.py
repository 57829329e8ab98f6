"""Thousands of agents in virtual time, and a model of twelve thousand: rounds, bytes, and one core's work.

    python tests/bench/scale_simulation.py [--agents 64 256 1024 2048] [--model 4096 12500] [--json]

Up to a few thousand agents the exchange is the real one (``scale_cluster``); beyond, a bitmap model plays the
same push-pull (``scale_model``). The model is run for the small sizes, too, so that the two can be compared.

``late_s``: virtual time from the stall timeout until the last agent holds the verdict. ``spread_s``: from the
suspicion until everybody holds all evidence (the model: rounds of ``sync_interval_s``). ``bytes_per_agent``
counts what an agent sends from then on; ``needed`` is what every agent has to be sent at least once:
everybody else's report. ``decide_s`` and ``decide_mb``: CPU time of one core that decides over all ranks, and
what the process has grown by, evidence included. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

sys.path[0] = str(Path(__file__).parents[2])  # this folder has a module called statistics, too

from scoutd.agent.core import Core
from scoutd.agent.events import Evidence, Observed, Report, Tick
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.agent.verdict import State
from tests.bench.hungjob import RANKS_PER_NODE, HungJob, NodeObserver
from tests.bench.scale_cluster import STALL_S, Cluster, Sizes, sizes
from tests.bench.scale_model import spread
from tests.simulation.timeline import ns

DEADLINE_S = 30.0


@dataclass
class Row:
    agents: int
    ranks: int
    how: str
    late_s: float | None
    spread_s: float
    bytes_per_agent: int
    needed: int
    times_needed: float
    decide_s: float
    decide_mb: float


def simulated(nodes: int, how_large: Sizes, seed: int) -> Row:
    """A whole cluster of real exchanges has been played."""
    cluster = Cluster(nodes, seed, how_large)
    cluster.run(DEADLINE_S)
    done = [a.done_ns for a in cluster.agents]
    complete = [a.complete_ns for a in cluster.agents]
    late = None if None in done else (max(d for d in done if d is not None) - cluster.due_ns) / 1e9
    spread_s = (max(c or ns(DEADLINE_S) for c in complete) - cluster.suspicious_ns) / 1e9
    return _row(nodes, "simulated", late, spread_s, cluster.sent_bytes // nodes, how_large)


def modelled(nodes: int, how_large: Sizes) -> Row:
    knobs = ExchangeSettings()
    found = spread(nodes, knobs.fanout, how_large)
    sent = found.column_bytes + found.report_bytes
    return _row(nodes, "modelled", None, found.rounds * knobs.sync_interval_s, sent, how_large)


def _row(nodes: int, how: str, late: float | None, spread_s: float, sent: int, how_large: Sizes) -> Row:
    needed = (nodes - 1) * how_large.report
    seconds, megabytes = decide_apart(nodes)
    ranks = nodes * RANKS_PER_NODE
    times = round(sent / needed, 2)
    return Row(nodes, ranks, how, late, round(spread_s, 2), sent, needed, times, seconds, megabytes)


def decide_apart(nodes: int) -> tuple[float, float]:
    """``decide`` in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--decide", str(nodes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = done.stdout.split()
    return float(seconds), float(megabytes)


def decide(nodes: int) -> tuple[float, float]:
    """CPU seconds of one core that judges the evidence of all ranks for the first time, and megabytes."""
    process = psutil.Process()
    before = process.memory_info().rss
    now = ns(100)
    job = HungJob(nodes, lambda: now, hung_ns=now - ns(STALL_S + 1))
    observers = [NodeObserver(job, k) for k in range(nodes)]
    observers[nodes // 2].captured(job.culprit)
    reports = [observer.observe()[0].report for observer in observers]
    core = Core(Settings(stall_timeout_s=STALL_S))
    core.step(Observed(reports[0]), now)
    started = time.process_time()
    core.step(Evidence(tuple((r, 0) for r in reports), frozenset(), True), now)
    said = [e.verdict for e in core.step(Tick(), now) if isinstance(e, Report)]
    seconds = time.process_time() - started
    assert [[i.rank for i in v.implicated] for v in said if v.state is State.CONFIRMED] == [[job.culprit]]
    after = process.memory_info().rss
    return round(seconds, 2), round((after - before) / 1e6, 1)


def show(rows: list[Row]) -> None:
    print("agents   ranks how        late_s spread_s  sent/agent      needed  times  decide_s decide_mb")
    for r in rows:
        late = "     -" if r.late_s is None else f"{r.late_s:6.2f}"
        print(
            f"{r.agents:6} {r.ranks:7} {r.how:9} {late} {r.spread_s:8.2f} {r.bytes_per_agent / 1e6:8.2f} MB "
            f"{r.needed / 1e6:8.2f} MB {r.times_needed:6.2f} {r.decide_s:9.2f} {r.decide_mb:9.1f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="How the exchange grows with the cluster.")
    parser.add_argument("--agents", type=int, nargs="*", default=[64, 256, 1024, 2048])
    parser.add_argument("--model", type=int, nargs="*", default=[64, 256, 1024, 2048, 4096, 12500])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--decide", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decide is not None:
        print(*decide(options.decide))
        return 0
    how_large = sizes()
    rows = []
    for nodes in options.agents:
        rows.append(simulated(nodes, how_large, options.seed))
        show(rows[-1:])
    for nodes in options.model:
        rows.append(modelled(nodes, how_large))
        show(rows[-1:])
    show(rows)
    if options.json:
        print(json.dumps({"bytes": asdict(how_large), "rows": [asdict(row) for row in rows]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
