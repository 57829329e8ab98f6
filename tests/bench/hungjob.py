"""A job as its nodes' shims would show it, without processes: healthy first, then one rank hangs.

Eight ranks a node. Tensor-parallel groups are the nodes, data-parallel groups run across them, and the world
holds everybody. The rank that hangs is in its forward pass: its tensor-parallel mates wait for it inside the
node, and everybody else has finished the step and waits in the gradients' all-reduce of their data-parallel
group, for the mates or for the rank itself. So no group but one contains both culprit and its direct victims.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from scoutd.agent.evidence import (
    Activity,
    Call,
    CallKind,
    CallState,
    Coordinate,
    Fingerprint,
    Frame,
    GroupView,
    Members,
    NodeReport,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    Source,
    Stack,
)

RANKS_PER_NODE = 8
WORLD, TENSOR, DATA = 1, 1 << 20, 2 << 20
CAPTURE_S = 0.1
STEP_NS = 50_000_000
LOOK_NS = 600_000_000
HEALTHY_LOOK_NS = 1_000_000_000
GRADIENTS = Fingerprint("all_reduce", "float32", 25_000_000, "SUM")
ACTIVATIONS = Fingerprint("all_reduce", "bfloat16", 8_388_608, "SUM")
STACK = Stack(
    (Frame("forward", "/home/me/model.py", 88), Frame("train", "/home/me/train.py", 31)), 0, False, False
)


@dataclass
class HungJob:
    """``name``: the job's. ``hung_ns``: when the rank stopped moving, None while all is well. ``keys`` and
    ``seeds``: what the job's store tells of its agents."""

    nodes: int
    clock: Callable[[], int]
    name: str = "bench"
    keys: tuple[bytes, ...] = (bytes(range(32)),)
    seeds: tuple[str, ...] = ()
    hung_ns: int | None = None

    @property
    def world_size(self) -> int:
        return self.nodes * RANKS_PER_NODE

    @property
    def culprit(self) -> int:
        return (self.nodes // 2) * RANKS_PER_NODE + 3

    def groups(self, rank: int, entered: Callable[[int], int], age_ns: int) -> tuple[GroupView, ...]:
        node, lane = divmod(rank, RANKS_PER_NODE)
        runs = {
            WORLD: (0, 1, self.world_size),
            TENSOR + node: (node * RANKS_PER_NODE, 1, RANKS_PER_NODE),
            DATA + lane: (lane, RANKS_PER_NODE, self.nodes),
        }
        names = {WORLD: "default_pg", TENSOR + node: "mesh_tp", DATA + lane: "mesh_dp"}
        return tuple(
            GroupView(g, names[g], names[g], "nccl", Members((run,)), entered(g), entered(g) - 1, age_ns)
            for g, run in runs.items()
        )


@dataclass(frozen=True)
class Discovery:
    keys: tuple[bytes, ...]
    seeds: tuple[str, ...]
    shared: bool = True


@dataclass(frozen=True)
class Observation:
    """See ``observe.observer.JobObservation``."""

    report: NodeReport
    discovery: Discovery
    generation: int = 1
    run: str = ""
    topology: dict[int, dict[str, Any]] = field(default_factory=dict)
    disabled: dict[int, str] = field(default_factory=dict)
    shim_cost: dict[int, tuple[int, int]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        return self.report.job


class NodeObserver:
    """Shared memory of one node of the job; see ``observe.observer.Observer``."""

    def __init__(self, job: HungJob, node: int) -> None:
        self.on_exit: Callable[[], None] | None = None
        self.unobserved: Sequence[Any] = ()
        self.warnings: Sequence[str] = ()
        self._job, self._node = job, node
        self._sampled: tuple[int, ...] = ()
        self._stacks: dict[int, int] = {}
        self._shown: dict[int, RankReport] = {}
        self._newest: list[Observation] = []
        self._newest_ns = 0

    @property
    def name(self) -> str:
        return f"node-{self._node:04d}"

    def observe(self) -> list[Observation]:
        """The bench is not about reading shared memory: one look serves several rounds."""
        now = self._job.clock()
        hung = self._job.hung_ns
        pause = HEALTHY_LOOK_NS if hung is None else LOOK_NS
        if (hung is not None and self._newest_ns < hung) or now - self._newest_ns >= pause:
            self._newest, self._newest_ns = self._look(), now
        return self._newest

    def _look(self) -> list[Observation]:
        first = self._node * RANKS_PER_NODE
        ranks = tuple(self._rank(r) for r in range(first, first + RANKS_PER_NODE))
        report = NodeReport(self._job.name, 1, self.name, 1, 0, self._job.world_size, ranks)
        return [Observation(report, Discovery(self._job.keys, self._job.seeds))]

    def sample_activity(self, job: str, ranks: tuple[int, ...]) -> None:
        self._sampled = ranks
        self._newest_ns = 0

    async def capture_stack(self, job: str, rank: int, native: bool) -> None:
        await asyncio.sleep(CAPTURE_S)
        self.captured(rank)

    def captured(self, rank: int) -> None:
        """The rank's stack is in its reports from now on."""
        self._stacks[rank] = self._job.clock()
        self._newest_ns = 0

    def forget(self, job: str, generation: int) -> None:
        """Nothing to remove."""

    def close(self) -> None:
        """Nothing to close."""

    def _rank(self, rank: int) -> RankReport:
        """The rank's report; while nothing but ages changes, the last one with its ages grown."""
        job = self._job
        known = self._shown.get(rank)
        if (
            job.hung_ns is None
            or known is None
            or (known.stack is None) != (rank not in self._stacks)
            or (known.activity is None) != (rank not in self._sampled)
            or not known.silent_ns
        ):
            self._shown[rank] = known = self._fresh(rank)
            return known
        return _aged(known, job.clock() - job.hung_ns)

    def _fresh(self, rank: int) -> RankReport:
        job, now = self._job, self._job.clock()
        hung = job.hung_ns
        still = now - hung if hung is not None else 0
        step = (hung if hung is not None else now) // STEP_NS
        coordinate, calls, entered = _place(job, rank, step, still)
        stack = self._stacks.get(rank)
        return RankReport(
            rank=rank,
            pid=4000 + rank,
            local_rank=rank % RANKS_PER_NODE,
            device=f"cuda:{rank % RANKS_PER_NODE}",
            observed=True,
            process=ProcessView(ProcessStatus.RUNNING),
            coordinates=(coordinate,),
            heartbeat_age_ns=300_000_000,
            silent_ns=still,
            attached_age_ns=now,
            calls=calls,
            groups=job.groups(rank, entered, still),
            activity=Activity(1_000_000_000, 0.01, 0.0, False) if rank in self._sampled else None,
            stack=STACK if stack is not None else None,
        )


def _aged(report: RankReport, still: int) -> RankReport:
    """The report with these ages; ``dataclasses.replace`` takes several times as long."""
    at = report.coordinates[0]
    moved = Coordinate(at.step, at.ordinal, at.phase, at.operation, still, at.waiting)
    calls = tuple(
        Call(c.group, c.sequence, c.kind, c.state, c.fingerprint, c.shape, still, c.waiting, c.source)
        for c in report.calls
    )
    return RankReport(
        rank=report.rank,
        pid=report.pid,
        local_rank=report.local_rank,
        device=report.device,
        observed=True,
        process=report.process,
        coordinates=(moved,),
        heartbeat_age_ns=report.heartbeat_age_ns,
        silent_ns=still,
        attached_age_ns=report.attached_age_ns,
        calls=calls,
        groups=report.groups,
        activity=report.activity,
        stack=report.stack,
    )


def _place(
    job: HungJob, rank: int, step: int, still: int
) -> tuple[Coordinate, tuple[Call, ...], Callable[[int], int]]:
    """Where the rank is: (coordinate, pending calls, sequence that it has entered by group)."""
    same_node = rank // RANKS_PER_NODE == job.culprit // RANKS_PER_NODE
    if job.hung_ns is None or rank == job.culprit:
        return Coordinate(step, step * 64, Phase.FORWARD, "layers.7", still), (), lambda group: step
    group = TENSOR + rank // RANKS_PER_NODE if same_node else DATA + rank % RANKS_PER_NODE
    fingerprint = ACTIVATIONS if same_node else GRADIENTS
    call = Call(
        group,
        step + 1,
        CallKind.COLLECTIVE,
        CallState.PENDING,
        fingerprint,
        f"[{fingerprint.numel}]",
        still,
        True,
        Source.PUBLIC,
    )
    coordinate = Coordinate(step, step * 64 + 9, Phase.COLLECTIVE, "all_reduce", still, True)
    return coordinate, (call,), lambda g: step + (g == group)
