"""What Prometheus sees. Every metric of scoutd is defined here, and none lives in a global registry.

Per-rank series are made at scrape time from the jobs that are observed now: the main loop pays nothing for
them, and the series of an ended job vanish with it, so their number stays O(local ranks). Counters and
histograms have labels with bounded values only: enum names, and reasons cut to a fixed vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from scoutd.agent.evidence import RankReport
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.jobs import Job
from scoutd.daemon.peer.traffic import Traffic
from scoutd.daemon.serve.peer_metrics import PeerCollector
from scoutd.daemon.serve.replay_metrics import ReplayCollector

LATENCY_BUCKETS_S: Final = (0.5, 1, 2, 5, 10, 20, 31, 60, 120, 300, 600, 1800)
"""31: the default stall timeout and the second that confirmation may take."""

OBSERVATION_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
REASONS: Final = (
    (re.compile(r"busy\b"), "busy"),
    (re.compile(r"phase ([A-Z]+) may take"), "phase"),
    (re.compile(r"rank \d+ makes progress"), "progress"),
    (re.compile(r"no rank waits"), "nobody_waits"),
    (re.compile(r"a job of one rank"), "one_rank"),
    (re.compile(r".*\bcancelled\b"), "cancelled"),
    (re.compile(r".*\bsuspended\b"), "suspended"),
)
"""The core's reasons are sentences; a label needs a word. What no pattern knows counts as "other"."""

Jobs = Callable[[], Iterable[Job]]
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class Metrics:
    """The registry of one agent; ``jobs`` yields what is observed now."""

    def __init__(self, jobs: Jobs, clock: Callable[[], int], version: str, python: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: Final = CollectorRegistry(auto_describe=False)
        registry = self.registry
        self._verdicts: Final = Counter(
            "scoutd_verdicts", "Verdicts by state entered.", ("symptom", "cause", "state"), registry=registry
        )
        self._suppressed: Final = Counter(
            "scoutd_suppressed_alarms", "Alarms that would have fired.", ("reason",), registry=registry
        )
        self._errors: Final = Counter(
            "scoutd_errors", "Errors that a part of the agent survived.", ("part",), registry=registry
        )
        self.detection_latency: Final = Histogram(
            "scoutd_detection_latency_seconds",
            "From the last sign of progress to the confirmed verdict.",
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.observation: Final = Histogram(
            "scoutd_observation_seconds",
            "Duration of one round of the main loop.",
            buckets=OBSERVATION_BUCKETS_S,
            registry=registry,
        )
        Gauge(
            "scoutd_build_info", "Version of this agent; always 1.", ("version", "python"), registry=registry
        ).labels(version, python).set(1)
        registry.register(RankCollector(jobs, clock))
        registry.register(ReplayCollector(jobs))
        self.traffic: Final = Traffic()
        self.peer_states: Callable[[], Mapping[str, int]] = lambda: {"ALIVE": 0, "UNREACHABLE": 0, "LEFT": 0}
        registry.register(PeerCollector(self.traffic, lambda: self.peer_states()))
        self._losses: Final[dict[str, Callable[[], int]]] = {}
        registry.register(LossCollector(self._losses))

    def watch_losses(self, part: str, lost: Callable[[], int]) -> None:
        """``lost`` is asked at each scrape for what a bounded part of the agent had to drop so far."""
        self._losses[part] = lost

    def count_verdict(self, symptom: str, cause: str, state: str) -> None:
        self._verdicts.labels(symptom, cause, state).inc()

    def count_suppressed(self, text: str) -> None:
        self._suppressed.labels(reason_label(text)).inc()

    def count_error(self, part: str) -> None:
        self._errors.labels(part).inc()

    def exposition(self) -> bytes:
        """The registry in the text format of ``CONTENT_TYPE``."""
        return generate_latest(self.registry)


def reason_label(text: str) -> str:
    """One word of a fixed vocabulary for the core's reason to hold an alarm back."""
    for pattern, label in REASONS:
        if found := pattern.match(text):
            return "_".join([label, *(group.lower() for group in found.groups())])
    return "other"


class RankCollector(Collector):
    """Reads the observed jobs whenever Prometheus asks."""

    def __init__(self, jobs: Jobs, clock: Callable[[], int]) -> None:
        self._jobs: Final = jobs
        self._clock: Final = clock

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        observed = GaugeMetricFamily(
            "scoutd_ranks_observed", "Ranks of a job seen on this node.", labels=("job", "state")
        )
        step = GaugeMetricFamily(
            "scoutd_rank_step", "Newest training step of a rank.", labels=("job", "rank")
        )
        age = GaugeMetricFamily(
            "scoutd_rank_progress_age_seconds",
            "Since a rank's coordinates, calls or counters last moved.",
            labels=("job", "rank"),
        )
        cost = CounterMetricFamily(
            "scoutd_shim_seconds", "Time the shim spent inside a rank's own calls.", labels=("job", "rank")
        )
        boundaries = CounterMetricFamily(
            "scoutd_shim_boundaries", "Boundaries that the shim published.", labels=("job", "rank")
        )
        now = self._clock()
        for job in self._jobs():
            _add_counts(observed, job)
            for rank in job.observation.report.ranks:
                if rank.observed:
                    _add_rank(step, age, (job.name, str(rank.rank)), rank, now - job.observed_ns)
            for number, (cost_ns, count) in sorted(job.observation.shim_cost.items()):
                cost.add_metric((job.name, str(number)), cost_ns / NS_PER_S)
                boundaries.add_metric((job.name, str(number)), count)
        yield from (observed, step, age, cost, boundaries)


class LossCollector(Collector):
    """Reads the counts of dropped things from their owners whenever Prometheus asks."""

    def __init__(self, losses: Mapping[str, Callable[[], int]]) -> None:
        self._losses: Final = losses

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "scoutd_dropped", "What a full queue of the agent made it drop.", labels=("part",)
        )
        for part, lost in self._losses.items():
            family.add_metric((part,), lost())
        yield family


def _add_counts(family: GaugeMetricFamily, job: Job) -> None:
    ranks = job.observation.report.ranks
    shimmed = sum(rank.observed for rank in ranks)
    family.add_metric((job.name, "observed"), shimmed)
    family.add_metric((job.name, "unobserved"), len(ranks) - shimmed)


def _add_rank(
    step: GaugeMetricFamily, age: GaugeMetricFamily, labels: tuple[str, str], rank: RankReport, since_ns: int
) -> None:
    if rank.coordinate is not None:
        step.add_metric(labels, rank.coordinate.step)
    age.add_metric(labels, (rank.silent_ns + max(since_ns, 0)) / NS_PER_S)
