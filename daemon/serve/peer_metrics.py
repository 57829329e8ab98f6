"""The exchange between agents, as Prometheus sees it. Labels are fixed words; nodes are no labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scoutd.daemon.peer.traffic import Traffic


class PeerCollector(Collector):
    """Reads the counts of the transport, and ``states`` of peers, whenever Prometheus asks."""

    def __init__(self, traffic: Traffic, states: Callable[[], Mapping[str, int]]) -> None:
        self._traffic: Final = traffic
        self._states: Final = states

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        peers = GaugeMetricFamily("scoutd_peers", "Other agents of the observed jobs.", labels=("state",))
        for state, count in self._states().items():
            peers.add_metric((state,), count)
        requests = CounterMetricFamily(
            "scoutd_peer_requests", "Requests to other agents.", labels=("kind", "outcome")
        )
        for labels, count in sorted(self._traffic.requests.items()):
            requests.add_metric(labels, count)
        answered = CounterMetricFamily(
            "scoutd_peer_answered", "Requests of other agents that were answered.", labels=("kind",)
        )
        for kind, count in sorted(self._traffic.answered.items()):
            answered.add_metric((kind,), count)
        refused = CounterMetricFamily(
            "scoutd_peer_refused", "Requests of others that were refused.", labels=("reason",)
        )
        for reason, count in sorted(self._traffic.refused.items()):
            refused.add_metric((reason,), count)
        size = CounterMetricFamily(
            "scoutd_peer_bytes", "Bytes of messages between agents.", labels=("direction",)
        )
        size.add_metric(("in",), self._traffic.bytes_in)
        size.add_metric(("out",), self._traffic.bytes_out)
        yield from (peers, requests, answered, refused, size)
