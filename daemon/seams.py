"""What the main loop needs of its two neighbours, as protocols: the core decides, the observer looks.

The loop is written against these alone, so unit tests drive it with small fakes and ``lifecycle`` is the one
place that knows the real classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from scoutd.agent.events import Effect, Event
from scoutd.agent.evidence import NodeReport
from scoutd.agent.history import History
from scoutd.agent.moment import Moment
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Verdict


class CorePort(Protocol):
    """One job's core. ``suspicious``: it may decide something soon."""

    @property
    def suspicious(self) -> bool: ...
    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...

    def step(self, event: Event, now_ns: int) -> Sequence[Effect]: ...

    def apply(self, settings: Settings) -> None: ...

    def moment(self, verdict_id: str) -> Moment | None: ...

    @property
    def history(self) -> History: ...

    @property
    def replays(self) -> ReplayWatch: ...


class ObservationPort(Protocol):
    """One job as one look at shared memory shows it; see ``observe.observer.JobObservation``."""

    @property
    def job(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def run(self) -> str: ...
    @property
    def report(self) -> NodeReport: ...
    @property
    def topology(self) -> Mapping[int, Mapping[str, Any]]: ...
    @property
    def disabled(self) -> Mapping[int, str]: ...
    @property
    def shim_cost(self) -> Mapping[int, tuple[int, int]]: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def discovery(self) -> DiscoveryPort: ...


class DiscoveryPort(Protocol):
    """What a job's shims say about its other agents; see ``observe.job.Discovery``."""

    @property
    def shared(self) -> bool: ...
    @property
    def keys(self) -> tuple[bytes, ...]: ...
    @property
    def seeds(self) -> tuple[str, ...]: ...


class NeighboursPort(Protocol):
    """The job's other agents; see ``peer.neighbours.Neighbours``."""

    def meet(self, observation: ObservationPort) -> None: ...
    def late(self, late_ns: int) -> None: ...
    def leave(self, job: str) -> None: ...
    def settled(self, job: str) -> bool: ...


class UnobservedPort(Protocol):
    """A process that carries a rank and has no shim."""

    @property
    def rank(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def reason(self) -> str: ...


class ObserverPort(Protocol):
    """Shared memory and /proc, behind one call."""

    on_exit: Callable[[], None] | None

    @property
    def unobserved(self) -> Sequence[UnobservedPort]: ...
    @property
    def warnings(self) -> Sequence[str]: ...

    def observe(self) -> Sequence[ObservationPort]: ...
    def sample_activity(self, job: str, ranks: tuple[int, ...]) -> None: ...
    async def capture_stack(self, job: str, rank: int, native: bool) -> None: ...
    def forget(self, job: str, generation: int) -> None: ...
    def close(self) -> None: ...
