"""One job as the daemon keeps it: its core, the newest look at it, and when it fell silent for good.

A job is *gone* when no rank of it lives here: every process has exited, or its files have vanished. It is
*concluded* once its core has been told so; a concluded job only waits for its last process to go, so that its
files can be removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scoutd.agent.events import Conclude, Effect, Observed, Tick
from scoutd.agent.evidence import NodeReport, ProcessStatus
from scoutd.agent.verdict import State, Verdict
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.seams import CorePort, ObservationPort

SETTLED_NS: Final = 10 * NS_PER_S
"""Longer than deaths are collected (``settle_s``) by default; after it nothing new can come."""


class Job:
    """``gone_since_ns`` is None while a rank lives. ``sampling``: the core asked for activity."""

    def __init__(self, observation: ObservationPort, core: CorePort, now_ns: int) -> None:
        self.name = observation.job
        self.core = core
        self.observation = observation
        self.observed_ns = now_ns
        self.began_ns = now_ns
        self.gone_since_ns: int | None = None
        self.sampling = False
        self.concluded = False

    @property
    def run(self) -> str:
        return self.observation.run

    @property
    def generation(self) -> int:
        return self.observation.generation

    @property
    def gone(self) -> bool:
        return self.gone_since_ns is not None

    def suspicious(self, now_ns: int) -> bool:
        """The core may decide something soon: look more often. A job that is gone settles in seconds."""
        if self.concluded or (self.gone_since_ns is not None and now_ns - self.gone_since_ns > SETTLED_NS):
            return False
        return self.sampling or self.core.suspicious

    def open_verdicts(self) -> list[Verdict]:
        return [each for each in self.core.verdicts if each.state in (State.OPEN, State.CONFIRMED)]

    def advance(self, observation: ObservationPort | None, now_ns: int) -> Sequence[Effect]:
        """The core has seen the newest observation (None: the files are missing) and the time."""
        if observation is not None:
            self.observation = observation
            self.observed_ns = now_ns
        self._note_gone(observation, now_ns)
        if self.concluded:
            return ()
        effects: list[Effect] = []
        if observation is not None:
            effects += self.core.step(Observed(observation.report), now_ns)
        effects += self.core.step(Tick(), now_ns)
        return effects

    def conclude(self, now_ns: int) -> Sequence[Effect]:
        """The core has decided what it can; later calls do nothing."""
        if self.concluded:
            return ()
        self.concluded = True
        return self.core.step(Conclude(), now_ns)

    def _note_gone(self, observation: ObservationPort | None, now_ns: int) -> None:
        if observation is not None and not all_gone(observation.report):
            self.gone_since_ns = None
        elif self.gone_since_ns is None:
            self.gone_since_ns = now_ns


def all_gone(report: NodeReport) -> bool:
    """No rank of the report lives; a report without ranks has none that lives."""
    return all(rank.process.status is ProcessStatus.GONE for rank in report.ranks)
