"""Small stand-ins for the core, the observer and a job, for tests of what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scoutd.agent.events import Conclude, Effect, Event
from scoutd.agent.evidence import (
    Call,
    CallKind,
    CallState,
    Coordinate,
    Fingerprint,
    GroupView,
    Members,
    NodeReport,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    Source,
)
from scoutd.agent.history import History
from scoutd.agent.messages import Order, OrderReply
from scoutd.agent.moment import Moment
from scoutd.agent.replaywatch import ReplayWatch
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Action, Cause, Implicated, Scope, State, Status, Symptom, Verdict
from scoutd.daemon.observe.job import Discovery
from scoutd.daemon.serve.replay_requests import ReplayRequests

S = 1_000_000_000


@dataclass(frozen=True)
class Observation:
    job: str
    generation: int
    run: str
    report: NodeReport
    topology: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    disabled: Mapping[int, str] = field(default_factory=dict)
    shim_cost: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    discovery: Discovery = field(default_factory=Discovery)
    starting: bool = False


@dataclass(frozen=True)
class Unobserved:
    rank: int
    pid: int
    reason: str


class FakeCore:
    """Answers every event from a script: event type → effects, used up in order."""

    def __init__(self, script: Sequence[tuple[type, list[Effect]]] = ()) -> None:
        self.script = list(script)
        self.events: list[Event] = []
        self.verdicts: tuple[Verdict, ...] = ()
        self.suspicious = False
        self.settings: Settings | None = None
        self.moments: dict[str, Moment] = {}
        self.history = History()
        self.replays = ReplayWatch(Settings())

    def step(self, event: Event, now_ns: int) -> list[Effect]:
        self.events.append(event)
        if self.script and isinstance(event, self.script[0][0]):
            return self.script.pop(0)[1]
        return []

    def apply(self, settings: Settings) -> None:
        self.settings = settings

    def moment(self, verdict_id: str) -> Moment | None:
        return self.moments.get(verdict_id)

    @property
    def concluded(self) -> int:
        return sum(isinstance(event, Conclude) for event in self.events)


class FakeObserver:
    """Shows ``observations``; remembers what it was asked for."""

    def __init__(self, *observations: Observation) -> None:
        self.observations = list(observations)
        self.on_exit: Callable[[], None] | None = None
        self.unobserved: Sequence[Unobserved] = ()
        self.warnings: Sequence[str] = ()
        self.sampled: list[tuple[str, tuple[int, ...]]] = []
        self.captured: list[tuple[str, int, bool]] = []
        self.forgotten: list[tuple[str, int]] = []
        self.closed = False

    def observe(self) -> Sequence[Observation]:
        return list(self.observations)

    def sample_activity(self, job: str, ranks: tuple[int, ...]) -> None:
        self.sampled.append((job, ranks))

    async def capture_stack(self, job: str, rank: int, native: bool) -> None:
        self.captured.append((job, rank, native))

    def forget(self, job: str, generation: int) -> None:
        self.forgotten.append((job, generation))
        self.observations = [o for o in self.observations if (o.job, o.generation) != (job, generation)]

    def close(self) -> None:
        self.closed = True


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 1000 * S

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)


def rank_report(rank: int, status: ProcessStatus = ProcessStatus.RUNNING, **changes: Any) -> RankReport:
    """Rank in step 12 of a group of four, waiting in its seventh all_reduce."""
    call = Call(
        group=0xA1,
        sequence=7,
        kind=CallKind.COLLECTIVE,
        state=CallState.PENDING,
        fingerprint=Fingerprint("all_reduce", "float32", 64, "SUM"),
        shape="[64]",
        age_ns=S,
        waiting=True,
        source=Source.PUBLIC,
    )
    group = GroupView(
        group=0xA1,
        name="default_pg",
        description="",
        backend="gloo",
        members=Members(((0, 1, 4),)),
        enqueued=7,
        retired=6,
        as_of_age_ns=S,
    )
    report = RankReport(
        rank=rank,
        pid=100 + rank,
        local_rank=rank,
        device="cpu",
        observed=True,
        process=ProcessView(status),
        coordinates=(Coordinate(12, 340, Phase.COLLECTIVE, "all_reduce", S, True),),
        heartbeat_age_ns=S // 2,
        silent_ns=2 * S,
        calls=(call,),
        groups=(group,),
    )
    return replace(report, **changes)


def observation(
    job: str = "j",
    generation: int = 1,
    run: str = "r",
    ranks: int = 4,
    status: ProcessStatus = ProcessStatus.RUNNING,
    **changes: Any,
) -> Observation:
    reports = tuple(rank_report(rank, status) for rank in range(ranks))
    report = NodeReport(
        job=job, generation=generation, node="n0", incarnation=1, version=1, world_size=ranks, ranks=reports
    )
    return replace(Observation(job, generation, run, report), **changes)


def verdict(identity: str = "aa", state: State = State.CONFIRMED, job: str = "j", **changes: Any) -> Verdict:
    made = Verdict(
        id=identity,
        job=job,
        generation=1,
        symptom=Symptom.HANG,
        status=Status.ATTRIBUTED,
        state=state,
        cause=Cause.RANK_STALLED,
        scope=Scope.RANK,
        phase=Phase.FORWARD,
        operation="blocks.3",
        summary="rank 2 is stuck",
        action=Action.RESTART_IN_PLACE,
        opened_ns=1000 * S,
        implicated=(Implicated(2, "n0", 102, "cpu", "silent for 5 s"),),
        confirmed_ns=1005 * S,
        detection_latency_ns=6 * S,
        onset_ns=999 * S,
    )
    return replace(made, **changes)


def no_replays() -> ReplayRequests:
    """Requests of an agent without jobs."""
    return ReplayRequests(lambda: (), lambda job, request: {}, nowhere, FakeClock())


async def nowhere(job: str, order: Order) -> dict[str, OrderReply | None]:
    """A job on one node."""
    return {}
