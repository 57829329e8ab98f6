"""Trainers in virtual time: every rank runs its program until a fault stops it, and others wait for it.

The model is dumb on purpose: a collective is over when its last member has come, a hung rank never goes on,
a dead one neither, and who is inside a collective with a dead rank loses the connection a moment later (or
waits for ever, where ``resets`` is off, as NCCL does). What it publishes is what the shim would: coordinates
before boundaries, calls with the host's wait, counters, notes of exceptions, a heartbeat. With ``recorder``
as the source it publishes no wait: then only a stack tells whether the host is inside a collective.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from scoutd.agent.evidence import DeathNote, Phase
from tests.property.program import Op
from tests.simulation.program import Grid, Group
from tests.simulation.timeline import Timeline, ns

Place = tuple[int, int]
HANGS = ("sleep", "native", "gil", "busy")
STOPS = (*HANGS, "stop")
DEATHS = ("kill", "exception")
KINDS = (*STOPS, *DEATHS, "mismatch")
LOST = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4242"


@dataclass(frozen=True)
class Fault:
    """``kind``: one of KINDS, before the operation ``op`` of step ``step``."""

    kind: str
    rank: int
    step: int
    op: int


@dataclass
class Trainer:
    """One rank. Times are the world's; ``since`` of calls and marks is when they began."""

    rank: int
    step: int = 1
    op: int = 0
    ordinal: int = 0
    moved_ns: int = 0
    phase: Phase = Phase.FORWARD
    hung: str = ""
    """Kind of the fault that holds it."""
    gone_ns: int | None = None
    exit: tuple[int | None, int | None] = (None, None)
    """(exit code, signal)."""
    note: DeathNote | None = None
    noted_ns: int = 0
    waits_at: Place | None = None
    failed_at: Place | None = None
    enqueued: dict[int, int] = field(default_factory=dict)
    started: dict[str, list[Place]] = field(default_factory=dict)
    open: dict[Place, int] = field(default_factory=dict)
    odd: set[Place] = field(default_factory=set)
    """Collectives that it called with another size than the others."""
    frozen_ns: int | None = None
    """Since when neither heartbeat nor counters are published."""

    @property
    def alive(self) -> bool:
        return self.gone_ns is None

    @property
    def can_move(self) -> bool:
        return self.alive and not self.hung and self.note is None


class Training:
    """All ranks of one generation. ``faults`` by rank; ``on_change(rank)`` is called at exits."""

    def __init__(
        self,
        timeline: Timeline,
        rng: random.Random,
        grid: Grid,
        ops: list[Op],
        faults: list[Fault],
        resets: bool = True,
        recorder: bool = False,
        compute_s: float = 0.05,
        last_step: int = 10**9,
    ) -> None:
        self.timeline = timeline
        self.grid = grid
        self.ops = ops
        self.recorder = recorder
        self.resets = resets
        self.faults = {fault.rank: fault for fault in faults}
        self.struck: dict[int, int] = {}
        """Faults that happened: rank → when."""
        self.ranks = [Trainer(rank, moved_ns=timeline.now_ns) for rank in range(grid.world_size)]
        self.on_death: Callable[[int], None] = lambda rank: None
        self._rng = rng
        self._compute_s = compute_s
        self._last_step = last_step
        self._groups = {group.identity: group for group in grid.groups}
        self._paused_until_ns = 0
        self._came: dict[Place, int] = {}
        self.done: dict[Place, bool] = {}
        self.broken: set[Place] = set()

    def start(self) -> None:
        for trainer in self.ranks:
            self._later(trainer, self._compute())

    def _compute(self) -> float:
        return self._compute_s * (0.5 + self._rng.random())

    def _later(self, trainer: Trainer, delay_s: float) -> None:
        resume = max(0, self._paused_until_ns - self.timeline.now_ns) / 1e9
        self.timeline.after(delay_s + resume, lambda: self._go(trainer))

    def pause(self, for_s: float) -> None:
        """Whatever begins from now on takes that much longer."""
        self._paused_until_ns = self.timeline.now_ns + ns(for_s)

    def _go(self, trainer: Trainer) -> None:
        """Runs operations until one takes time."""
        while trainer.can_move and trainer.waits_at is None and trainer.step <= self._last_step:
            if self._strikes(trainer):
                return
            op = self.ops[trainer.op]
            self._move(trainer)
            if op.kind == "compute":
                self._advance(trainer)
                self._later(trainer, self._compute())
                return
            if not self._communicate(trainer, op):
                return
            self._advance(trainer)

    def _move(self, trainer: Trainer) -> None:
        trainer.ordinal += 1
        trainer.moved_ns = self.timeline.now_ns

    def _advance(self, trainer: Trainer) -> None:
        trainer.op += 1
        half = len(self.ops) // 2
        trainer.phase = Phase.FORWARD if trainer.op < half else Phase.BACKWARD
        if trainer.op == len(self.ops):
            trainer.op, trainer.step = 0, trainer.step + 1
            trainer.phase = Phase.FORWARD

    def _communicate(self, trainer: Trainer, op: Op) -> bool:
        """True if the host goes on at once."""
        group = self.grid.group_of[trainer.rank][op.axis]
        if op.kind == "await":
            started = trainer.started.get(op.axis, [])
            if not started:
                return True
            place = started.pop(0)
        else:
            place = self._enter(trainer, group)
            if op.kind == "start":
                trainer.started.setdefault(op.axis, []).append(place)
                return True
        if self.done.get(place):
            return True
        trainer.waits_at = place
        return False

    def _enter(self, trainer: Trainer, group: Group) -> Place:
        sequence = trainer.enqueued.get(group.identity, 0) + 1
        trainer.enqueued[group.identity] = sequence
        place = (group.identity, sequence)
        trainer.open[place] = self.timeline.now_ns
        if len(group.ranks) > 1 and self._mismatches(trainer):
            trainer.odd.add(place)
            self.broken.add(place)
            self.struck[trainer.rank] = self.timeline.now_ns
        self._came[place] = self._came.get(place, 0) + 1
        if self._came[place] == len(group.ranks) and place not in self.broken:
            self.timeline.after(0.001, lambda: self._complete(place))
        elif self.resets and any(not self.ranks[r].alive for r in group.ranks):
            self._reset_soon(trainer)
        return place

    def _mismatches(self, trainer: Trainer) -> bool:
        fault = self.faults.get(trainer.rank)
        if fault is None or fault.kind != "mismatch" or trainer.rank in self.struck:
            return False
        return (trainer.step, trainer.op) >= (fault.step, fault.op)

    def _complete(self, place: Place) -> None:
        self.done[place] = True
        for rank in self._groups[place[0]].ranks:
            trainer = self.ranks[rank]
            trainer.open.pop(place, None)
            if trainer.waits_at == place and trainer.can_move:
                trainer.waits_at = None
                trainer.moved_ns = self.timeline.now_ns
                self._advance(trainer)
                self._later(trainer, 0.0005)

    def _strikes(self, trainer: Trainer) -> bool:
        fault = self.faults.get(trainer.rank)
        if fault is None or trainer.rank in self.struck or fault.kind == "mismatch":
            return False
        if (trainer.step, trainer.op) < (fault.step, fault.op):
            return False
        self.strike(trainer.rank, fault.kind)
        return True

    def strike(self, rank: int, kind: str) -> None:
        """The fault happens now, wherever the rank is."""
        trainer = self.ranks[rank]
        if not trainer.alive:
            return
        self.struck[rank] = self.timeline.now_ns
        if kind == "kill":
            self.dies(rank, None, 9)
        elif kind == "exception":
            self.raises(rank, "ValueError", "loss is not finite")
        else:
            trainer.hung = kind
            if kind in ("gil", "stop"):
                trainer.frozen_ns = self.timeline.now_ns

    def raises(self, rank: int, kind: str, message: str, tail_s: float = 0.05) -> None:
        """An exception ends the main thread; the process ends ``tail_s`` later."""
        trainer = self.ranks[rank]
        if trainer.note is not None or not trainer.alive:
            return
        where = "train.py:41 in step"
        trainer.note = DeathNote("EXCEPTION", kind, message, where, where, 0)
        trainer.noted_ns = self.timeline.now_ns
        trainer.failed_at, trainer.waits_at = trainer.waits_at, None
        self.timeline.after(tail_s, lambda: self.dies(rank, 1, None))

    def dies(self, rank: int, code: int | None, signal: int | None) -> None:
        """The process is gone; whoever is in a collective with it loses the connection."""
        trainer = self.ranks[rank]
        if not trainer.alive:
            return
        trainer.gone_ns, trainer.exit = self.timeline.now_ns, (code, signal)
        self.on_death(rank)
        if not self.resets:
            return
        for group in self.grid.group_of[rank].values():
            for other in group.ranks:
                if self.ranks[other].can_move and self.ranks[other].waits_at is not None:
                    self._reset_soon(self.ranks[other])

    def _reset_soon(self, trainer: Trainer) -> None:
        self.timeline.after(0.002 + self._rng.expovariate(100), lambda: self._reset(trainer))

    def _reset(self, trainer: Trainer) -> None:
        at = trainer.waits_at
        if at is None or not trainer.can_move:
            return
        if any(not self.ranks[r].alive for r in self._groups[at[0]].ranks):
            self.raises(trainer.rank, "RuntimeError", LOST, 0.02 + self._rng.expovariate(20))

    def vanish(self, rank: int) -> None:
        """The rank's machine is gone: it does nothing any more, and nobody can look at it."""
        trainer = self.ranks[rank]
        trainer.hung = trainer.hung or "vanished"
        self.dies(rank, None, 9)

    def lacks(self, place: Place) -> list[int]:
        """Members of a place's group that have not come there."""
        group, sequence = place
        return [r for r in self._groups[group].ranks if self.ranks[r].enqueued.get(group, 0) < sequence]
