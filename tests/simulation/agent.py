"""One agent in the simulation: a Party, its clock, its loop, and what a daemon does around them.

A round observes the node's ranks, feeds the party, carries out its effects and hands its requests to the
network. Rounds follow each other every 0.25 s, 0.1 s while something is suspicious. A *stopped* agent
(SIGSTOP) runs nothing; requests and replies wait in its sockets. A *dead* one refuses connections; a
restarted one has its persisted incarnation, or has lost it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scoutd.agent.events import CaptureStack, Effect, Report, SampleActivity
from scoutd.agent.evidence import NodeReport, Stack
from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Outgoing, Relay, Reply, Request
from scoutd.agent.party import Party
from scoutd.agent.replica import Replica
from scoutd.agent.verdict import Verdict
from tests.simulation.network import Answer
from tests.simulation.reporting import capture, report_of
from tests.simulation.timeline import ns

if TYPE_CHECKING:
    from tests.simulation.world import World

IDLE_S = 0.25
FAST_S = 0.1
PYTHON_STACK_S = 0.08
NATIVE_STACK_S = 1.0
JOIN_S = 3.0


@dataclass(frozen=True)
class Clock:
    """The node's monotonic clock: the world's time at another rate and from another start."""

    offset_ns: int = 0
    rate: float = 1.0

    def read(self, world_ns: int) -> int:
        return self.offset_ns + int(world_ns * self.rate)


@dataclass
class Said:
    """A verdict as an agent reported it."""

    at_ns: int
    node: str
    verdict: Verdict


@dataclass
class Agent:
    """``ranks``: the local ranks. ``life`` counts restarts; calls of an earlier life are dropped."""

    world: World
    node: str
    address: str
    ranks: tuple[int, ...]
    clock: Clock
    seeds: tuple[str, ...]
    seed: int
    incarnation: int = 0
    listening: bool = False
    stopped: bool = False
    life: int = 0
    generation: int = 0
    sampled: tuple[int, ...] = ()
    stacks: dict[int, tuple[Stack, int]] = field(default_factory=dict)
    _met_ns: int = 0
    _waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def now(self) -> int:
        return self.clock.read(self.world.timeline.now_ns)

    def start(self, forget: bool = False) -> None:
        """A new process. ``forget``: it has lost its persisted incarnation."""
        self.life += 1
        self.incarnation = 1 if forget else self.incarnation + 1
        self.generation = self.world.generation
        self._met_ns = self.now
        self.party = Party(self.world.settings, self._exchange(), self.world.encode, self.world.decode)
        self.listening, self.stopped, self.sampled = True, False, ()
        self.stacks.clear()
        self._round(self.life)

    def _exchange(self) -> Exchange:
        replica = Replica(self.node, self.address, self.incarnation)
        rng = random.Random(f"{self.seed} {self.node} {self.life} {self.world.generation}")
        return Exchange(replica, self.world.exchange, rng, self.seeds)

    def kill(self) -> None:
        self.listening = False
        self.life += 1
        self._waiting.clear()

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT: what waited in the sockets and timers happens now, in its order."""
        self.stopped = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def deliver(self, request: Request, answer: Answer) -> None:
        self._when_running(lambda: self._answer(request, answer))

    def observe(self) -> NodeReport:
        training = self.world.training
        ranks = tuple(
            report_of(training, training.ranks[r], self.stacks.get(r), r in self.sampled) for r in self.ranks
        )
        if self.world.replays is not None:
            ranks = tuple(self.world.replays.onto(rank, self.world.timeline.now_ns) for rank in ranks)
        world_size = training.grid.world_size
        return NodeReport("job", self.world.generation, self.node, self.incarnation, 0, world_size, ranks)

    def conclude(self) -> None:
        self._carry_out(self.party.conclude(self.now))

    def _when_running(self, call: Callable[[], None]) -> None:
        life = self.life

        def run() -> None:
            if life == self.life:
                call()

        if self.stopped:
            self._waiting.append(run)
        else:
            run()

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        life = self.life

        def due() -> None:
            if life == self.life:
                self._when_running(call)

        self.world.timeline.after(delay_s, due)

    def _round(self, life: int) -> None:
        """Look, decide, act, and again. A new generation exchanges evidence anew. Nothing is judged before
        somebody who sees the other ranks is found, or is not found in time."""
        now = self.now
        if self.generation != self.world.generation:
            self.generation, self._met_ns = self.world.generation, now
            self.party.renew(self._exchange())
        effects = self.party.observe(self.observe(), now)
        exchange = self.party.exchange
        if exchange.peers or now - self._met_ns > ns(JOIN_S):
            more, sent = self.party.tick(now)
            effects += more
        else:
            sent = exchange.tick(now)
        self._carry_out(effects)
        self._send(sent)
        hurry = self.party.suspicious or self.party.exchange.alarmed(now)
        interval = (FAST_S if hurry else IDLE_S) * self.world.jitter.uniform(0.95, 1.1)
        self._later(interval, lambda: self._round(life))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Report):
                self.world.heard(self, effect.verdict)
            elif isinstance(effect, SampleActivity):
                self.sampled = effect.ranks
            elif isinstance(effect, CaptureStack):
                self._capture(effect.rank, effect.native)

    def _capture(self, rank: int, native: bool) -> None:
        def done() -> None:
            training = self.world.training
            if rank < len(training.ranks):
                stack = capture(training, training.ranks[rank], native)
                self.stacks[rank] = (stack, self.world.timeline.now_ns)

        self._later(NATIVE_STACK_S if native else PYTHON_STACK_S, done)

    def _answer(self, request: Request, answer: Answer) -> None:
        if not isinstance(request, Relay):
            answer(self.party.handle(request, self.now))
            return
        probe = self.party.relay(request, self.now)
        self.world.network.send(
            self.node,
            probe,
            lambda reply: self._when_running(lambda: answer(self.party.relayed(reply))),
            lambda: self._when_running(lambda: answer(self.party.relayed(None))),
        )

    def _send(self, sent: list[Outgoing]) -> None:
        for out in sent:
            self._send_one(out)

    def _send_one(self, out: Outgoing) -> None:
        life = self.life

        def replied(reply: Reply) -> None:
            if life == self.life:
                self._when_running(lambda: self._send(self.party.on_reply(out, reply, self.now)))

        def failed() -> None:
            if life == self.life:
                self._when_running(lambda: self._send(self.party.on_failure(out, self.now)))

        self.world.network.send(self.node, out, replied, failed)
