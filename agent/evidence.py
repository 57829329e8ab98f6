"""Evidence: what a node knows about its ranks, as ages, never as time stamps.

A node's daemon turns shared memory and /proc into one ``NodeReport`` per observation; the core and, later,
the peers of other nodes read only this. Every time is an *age* in nanoseconds at the moment of the report
(clocks of two hosts are never compared). ``None`` means unknown, which is never the same as zero or false.
All classes are frozen and hashable, so that equal evidence is equal by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import repeat

from scoutd.agent.replay import RecipeView, ReplayCost, ReplayResult


class Phase(str, Enum):
    """What a rank is doing (design §3). NONE: nothing published. BETWEEN: the user's own code, outside
    every boundary that the shim sees."""

    NONE = "NONE"
    INIT = "INIT"
    INPUT = "INPUT"
    FORWARD = "FORWARD"
    BACKWARD = "BACKWARD"
    OPTIMIZER = "OPTIMIZER"
    COLLECTIVE = "COLLECTIVE"
    CHECKPOINT = "CHECKPOINT"
    COMPILE = "COMPILE"
    EVAL = "EVAL"
    STORE = "STORE"
    EXITING = "EXITING"
    BETWEEN = "BETWEEN"


class CallState(str, Enum):
    PENDING = "PENDING"
    DONE = "DONE"
    FAILED = "FAILED"


class CallKind(str, Enum):
    COLLECTIVE = "COLLECTIVE"
    P2P_SEND = "P2P_SEND"
    P2P_RECV = "P2P_RECV"
    STORE = "STORE"


class Source(str, Enum):
    """PUBLIC: published by the shim before the call. RECORDER: seen later in the Flight Recorder."""

    PUBLIC = "PUBLIC"
    RECORDER = "RECORDER"


class ProcessStatus(str, Enum):
    """STOPPED: SIGSTOP or job control (state T), not a tracer's stop. GONE: exited and reaped or a zombie.
    UNKNOWN: the process cannot be seen (other PID namespace) and its lock says nothing either."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    GONE = "GONE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One thread's progress coordinate. ``ordinal`` grows with every boundary of the process; ``waiting``:
    the host is inside a call that returns only when other ranks arrive."""

    step: int
    ordinal: int
    phase: Phase
    operation: str
    age_ns: int
    waiting: bool = False
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What members of one (group, sequence) must agree on. ``argument`` is the reduce operation or root
    ("SUM", "root=3"), None where the source does not tell (the recorder); ``numel`` is None where sizes
    may legally differ."""

    operation: str
    dtype: str
    numel: int | None
    argument: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A collective, P2P or store call of a rank, pending or recent. ``waiting``: the host is inside it.
    ``peer`` is a global rank (P2P only). ``age_ns`` counts from the entry. ``sends`` and ``receives``:
    elements to and from each member in an all_to_all, in group order (of large groups the first members,
    None where a number is unknown); empty elsewhere."""

    group: int
    sequence: int
    kind: CallKind
    state: CallState
    fingerprint: Fingerprint
    shape: str
    age_ns: int
    waiting: bool
    source: Source
    peer: int | None = None
    tag: int | None = None
    left_age_ns: int | None = None
    sends: tuple[int | None, ...] = ()
    receives: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Members:
    """Global ranks of a process group in group order, as runs (start, stride, count): O(runs) to store
    and to test, whatever the group's size."""

    runs: tuple[tuple[int, int, int], ...]

    def __len__(self) -> int:
        return sum(count for _, _, count in self.runs)

    def __iter__(self) -> Iterator[int]:
        for start, stride, count in self.runs:
            if stride:
                yield from range(start, start + count * stride, stride)
            else:
                yield from repeat(start, count)

    def __contains__(self, rank: object) -> bool:
        if not isinstance(rank, int):
            return False
        for start, stride, count in self.runs:
            if rank in range(start, start + count * stride, stride) if stride else rank == start:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """A rank's newest collectives in one group, as hashes of what members must agree on: those of the
    sequences up to ``last``, oldest first, None where one is unknown. The highest bit marks hashes that the
    recorder told, which compare among themselves only."""

    last: int
    hashes: tuple[int | None, ...]

    def by_sequence(self) -> dict[int, int]:
        first = self.last - len(self.hashes) + 1
        return {first + k: value for k, value in enumerate(self.hashes) if value is not None}


@dataclass(frozen=True, slots=True)
class GroupView:
    """A process group as one member sees it. ``enqueued``: highest collective sequence that this rank has
    entered, exact ``as_of_age_ns`` ago. ``retired``: highest known to be finished. ``members`` is None
    where the shim could not store them. ``group`` identifies the group job-wide. ``started``: highest that
    the device has begun, None unless the recorder times it; not exchanged between agents. ``history`` is
    None while the rank is not silent."""

    group: int
    name: str
    description: str
    backend: str
    members: Members | None
    enqueued: int
    retired: int | None
    as_of_age_ns: int
    started: int | None = None
    history: Fingerprints | None = None


@dataclass(frozen=True, slots=True)
class Contested:
    """A (group, sequence) at which ranks of this node called different things, though nobody waits there:
    what each of them called, and its newest collectives then. ``members`` is None where nobody knows them.
    Told by a node about itself; not exchanged between agents."""

    group: int
    sequence: int
    name: str
    members: Members | None
    calls: tuple[tuple[int, Call], ...]
    histories: tuple[tuple[int, Fingerprints], ...] = ()


@dataclass(frozen=True, slots=True)
class DeathNote:
    """An exception that ended a thread or the process; ``source`` EXCEPTION, THREAD or WATCHDOG."""

    source: str
    kind: str
    message: str
    location: str
    user_location: str
    age_ns: int


@dataclass(frozen=True, slots=True)
class ProcessView:
    """``exit_code`` and ``signal`` are None while it lives and where they could not be read.
    ``oom``: the kernel killed it for memory, None where nothing is known."""

    status: ProcessStatus
    exit_code: int | None = None
    signal: int | None = None
    gone_age_ns: int | None = None
    stopped_age_ns: int | None = None
    oom: bool | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """What the operating system says of a silent rank over the last ``window_ns``. ``cpu_ratio``: CPU
    time of its publishing threads and its child processes per wall time. ``stack_moving``: the Python
    stack of its main thread changed between samples, None where no stack could be read."""

    window_ns: int
    cpu_ratio: float
    io_bytes_per_s: float
    stack_moving: bool | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    file: str
    line: int
    native: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """The main thread's stack, innermost frame first. ``refused`` says why there is none.
    ``waits``: its innermost frames are a collective's or store's wait."""

    frames: tuple[Frame, ...]
    age_ns: int
    native: bool
    waits: bool | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class RankReport:
    """Everything known about one rank. ``observed`` is False for a process that carries this rank but has
    no shim: then only ``pid`` and ``process`` mean something. ``silent_ns``: how long none of its
    coordinates, calls or counters has moved. ``replays``: the results of its newest rounds."""

    rank: int
    pid: int
    local_rank: int
    device: str
    observed: bool
    process: ProcessView
    coordinates: tuple[Coordinate, ...] = ()
    heartbeat_age_ns: int | None = None
    silent_ns: int = 0
    attached_age_ns: int = 0
    calls: tuple[Call, ...] = ()
    groups: tuple[GroupView, ...] = ()
    notes: tuple[DeathNote, ...] = ()
    activity: Activity | None = None
    stack: Stack | None = None
    recipes: tuple[RecipeView, ...] = ()
    replays: tuple[ReplayResult, ...] = ()
    replay_cost: ReplayCost | None = None

    @property
    def coordinate(self) -> Coordinate | None:
        """The newest coordinate over all threads."""
        if len(self.coordinates) == 1:
            return self.coordinates[0]
        return min(self.coordinates, key=lambda c: c.age_ns, default=None)


@dataclass(frozen=True, slots=True)
class SeenDeath:
    """A death on another node, as old as this node sees it (``firsts``)."""

    rank: int
    age_ns: int


@dataclass(frozen=True)
class NodeReport:
    """One node's newest word on its ranks of one job; the unit that the evidence exchange merges by
    (incarnation, version). ``seen``: deaths on other nodes that may have been first."""

    job: str
    generation: int
    node: str
    incarnation: int
    version: int
    world_size: int
    ranks: tuple[RankReport, ...] = field(default_factory=tuple)
    contested: tuple[Contested, ...] = ()
    seen: tuple[SeenDeath, ...] = ()

    # What is asked of every report in every round is worked out once for each.

    @cached_property
    def longest_ns(self) -> int:
        """The longest silence of a rank in it."""
        return max((rank.silent_ns for rank in self.ranks if rank.observed), default=0)

    @cached_property
    def lives(self) -> bool:
        """Some process in it is not gone."""
        return not all(rank.process.status is ProcessStatus.GONE for rank in self.ranks)

    @cached_property
    def urgent(self) -> bool:
        """There is something in it that is judged without silence: somebody died or said why it would, or
        told its splits."""
        return any(
            rank.process.status is ProcessStatus.GONE or rank.notes or any(c.sends for c in rank.calls)
            for rank in self.ranks
        )

    @cached_property
    def replayed(self) -> tuple[RankReport, ...]:
        """The ranks in it that tell results of replays."""
        return tuple(rank for rank in self.ranks if rank.replays)
