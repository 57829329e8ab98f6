"""A cluster in virtual time: agents, their network, the trainers, and everything that can go wrong.

Nothing here decides anything: the agents run the daemon's own classes (``Party`` and below), and the world
brings time, randomness, the network and the faults, all from one seed. Every node has its own clock, hours
away from the others and drifting; only ages travel. Encoded reports are keys of a table, so that a run costs
no serialisation; ``encode`` still gives each report its own bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from scoutd.agent.evidence import NodeReport
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.agent.verdict import State, Verdict
from tests.simulation.agent import Agent, Clock, Said
from tests.simulation.network import Network, Weather
from tests.simulation.replaying import Replays
from tests.simulation.timeline import Timeline, ns
from tests.simulation.trainers import Training

HOUR_NS = ns(3600)


@dataclass
class World:
    """``generation`` counts restarts of the job. ``said``: every report of every agent, in order.
    ``replays``: what the ranks replay, None for nothing."""

    seed: int
    settings: Settings
    weather: Weather = field(default_factory=Weather)
    exchange: ExchangeSettings = field(default_factory=ExchangeSettings)
    generation: int = 1
    on_said: Callable[[Said], None] = lambda said: None
    replays: Replays | None = None

    def __post_init__(self) -> None:
        self.timeline = Timeline()
        self.random = random.Random(f"world {self.seed}")
        self.jitter = random.Random(f"jitter {self.seed}")
        self.network = Network(self.timeline, random.Random(f"network {self.seed}"), self.weather)
        self.agents: dict[str, Agent] = {}
        self.lost_nodes: set[str] = set()
        self.ever_struck: set[int] = set()
        """Ranks to which a fault happened in an earlier generation."""
        self.ever_away: set[str] = set()
        """Nodes that were, at some time, without an agent that others could reach."""
        self.said: list[Said] = []
        self.training: Training
        self._table: dict[bytes, NodeReport] = {}

    def populate(self, nodes: int, ranks_per_node: int, training: Training, warm: bool = True) -> None:
        """Agents and trainers start. ``warm``: agents know each other already; else they join via seeds."""
        self.training = training
        names = [f"node-{k}" for k in range(nodes)]
        seeds = tuple(self._address(k) for k in range(min(nodes, 3)))
        for k, name in enumerate(names):
            clock = Clock(self.random.randint(HOUR_NS, 3 * HOUR_NS), 1 + self.random.uniform(-2e-4, 2e-4))
            ranks = tuple(range(k * ranks_per_node, (k + 1) * ranks_per_node))
            agent = Agent(self, name, self._address(k), ranks, clock, seeds, self.seed)
            self.agents[name] = agent
            self.network.endpoints[agent.address] = agent
        for agent in self.agents.values():
            self.timeline.after(self.random.uniform(0, 0.25), agent.start)
        if warm:
            self.timeline.after(0.3, self._introduce)
        training.start()

    def _address(self, node: int) -> str:
        return f"10.0.{node // 250}.{node % 250 + 1}:4000"

    def _introduce(self) -> None:
        marks = tuple(a.party.exchange.replica.mine for a in self.agents.values() if a.listening)
        for agent in self.agents.values():
            agent.party.exchange.replica.merge_marks(marks, agent.now)

    def encode(self, report: NodeReport) -> bytes:
        data = len(self._table).to_bytes(8, "big")
        self._table[data] = report
        return data

    def decode(self, data: bytes) -> NodeReport:
        try:
            return self._table[data]
        except KeyError as error:
            raise ValueError("no report") from error

    def heard(self, agent: Agent, verdict: Verdict) -> None:
        said = Said(self.timeline.now_ns, agent.node, verdict)
        self.said.append(said)
        self.on_said(said)

    def kill_agent(self, node: str) -> None:
        self.ever_away.add(node)
        self.agents[node].kill()

    def stop_agent(self, node: str) -> None:
        self.ever_away.add(node)
        self.agents[node].stop()

    def lose_node(self, node: str) -> None:
        """Power is gone: agent, ranks and network at once."""
        self.lost_nodes.add(node)
        self.kill_agent(node)
        self.network.gone.add(node)
        for rank in self.agents[node].ranks:
            self.training.vanish(rank)

    def cut(self, nodes: list[str], both_ways: bool = True) -> None:
        """These nodes' agents are separated from all others."""
        self.ever_away |= set(nodes)
        self.network.cut(nodes, [n for n in self.agents if n not in nodes], both_ways)

    def restart_job(self, training: Training) -> None:
        """The launcher starts the next generation; the old processes are gone."""
        for trainer in self.training.ranks:
            trainer.gone_ns = trainer.gone_ns or self.timeline.now_ns
        self.ever_struck |= set(self.training.struck)
        self.generation += 1
        self.training = training
        for agent in self.agents.values():
            agent.stacks.clear()
            agent.sampled = ()
        training.start()

    def jump(self, node: str, by_s: float) -> None:
        """The node's monotonic clock leaps."""
        agent = self.agents[node]
        agent.clock = Clock(agent.clock.offset_ns + ns(by_s), agent.clock.rate)

    def pause(self, at_s: float, for_s: float) -> None:
        """Every rank stands still for a while, and goes on: no fault."""
        self.timeline.after(at_s, lambda: self.training.pause(for_s))

    def confirmed(self, node: str) -> list[Verdict]:
        """What this agent has confirmed, each in the words of its confirmation."""
        return [s.verdict for s in self.said if s.node == node and s.verdict.state is State.CONFIRMED]

    def run(self, until_s: float) -> None:
        self.timeline.run_until(until_s)
