"""A network that delays, loses, duplicates and reorders, as its seed says.

A request is one leg, its reply another; each is lost with probability ``loss`` and delayed by a skewed random
time, so requests overtake each other. The sender hears of every request exactly once: a reply within the
time-out, or a failure. ``cut`` blocks directions between nodes. Lost nodes swallow what they are sent;
a dead agent on a living node refuses at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from scoutd.agent.messages import Outgoing, Reply, Request
from tests.simulation.timeline import Timeline, ns

Answer = Callable[[Reply], None]


class Endpoint(Protocol):
    """``listening``: a process accepts connections at this address."""

    node: str
    listening: bool

    def deliver(self, request: Request, answer: Answer) -> None: ...


@dataclass(frozen=True)
class Weather:
    """``loss``: of one leg. ``duplication``: of a request. Delays: ``mean`` is of the exponential part."""

    loss: float = 0.0
    duplication: float = 0.0
    least_delay_s: float = 0.0002
    mean_delay_s: float = 0.002


@dataclass
class Network:
    timeline: Timeline
    random: random.Random
    weather: Weather = field(default_factory=Weather)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Nodes without power: nothing comes back, not even a refusal."""
    sent = 0
    lost = 0

    def __post_init__(self) -> None:
        self._cut: set[tuple[str, str]] = set()

    def cut(self, one: Iterable[str], other: Iterable[str], both_ways: bool = True) -> None:
        """Nothing passes from ``one`` to ``other`` any more."""
        others = tuple(other)
        for a in one:
            for b in others:
                self._cut.add((a, b))
                if both_ways:
                    self._cut.add((b, a))

    @property
    def isolated(self) -> set[str]:
        """Nodes that somebody cannot reach, on the smaller side of a cut."""
        nodes = {e.node for e in self.endpoints.values()}
        count = {n: sum(self.reaches(n, m) and self.reaches(m, n) for m in nodes if m != n) for n in nodes}
        return {n for n in nodes if 2 * (count[n] + 1) <= len(nodes)}

    def heal(self) -> None:
        self._cut.clear()

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut and not {source, target} & self.gone

    def send(self, source: str, out: Outgoing, on_reply: Answer, on_failure: Callable[[], None]) -> None:
        """Delivers ``out`` from node ``source``; one of the two callbacks is called, once."""
        self.sent += 1
        open_ = [True]

        def reply(answer: Reply, target: str) -> None:
            self._leg(target, source, lambda: settle(lambda: on_reply(answer)))

        def settle(call: Callable[[], None]) -> None:
            if open_[0]:
                open_[0] = False
                call()

        self.timeline.at(self.timeline.now_ns + out.timeout_ns, lambda: settle(on_failure))
        endpoint = self.endpoints.get(out.address)
        if endpoint is None or not (endpoint.listening or endpoint.node in self.gone):
            self.timeline.after(2 * self._delay_s(), lambda: settle(on_failure))
            return
        twice = self.random.random() < self.weather.duplication
        for _ in range(2 if twice else 1):
            self._leg(source, endpoint.node, lambda: self._arrive(endpoint, out.request, reply))

    def _arrive(self, endpoint: Endpoint, request: Request, reply: Callable[[Reply, str], None]) -> None:
        if endpoint.listening:
            endpoint.deliver(request, lambda answer: reply(answer, endpoint.node))

    def _leg(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        if not self.reaches(source, target) or self.random.random() < self.weather.loss:
            self.lost += 1
            return
        self.timeline.at(self.timeline.now_ns + ns(self._delay_s()), arrive)

    def _delay_s(self) -> float:
        return self.weather.least_delay_s + self.random.expovariate(1 / self.weather.mean_delay_s)
