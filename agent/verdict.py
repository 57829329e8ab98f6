"""The verdict: what scoutd says, with the names of design §4.

A verdict's ``id`` is a hash of what it is about, so equal evidence gives equal ids on every node, and the
states of one verdict (OPEN → CONFIRMED → RESOLVED, or SUPPRESSED) share it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from scoutd.agent.evidence import DeathNote, Phase, Stack


class Symptom(str, Enum):
    HANG = "HANG"
    STRAGGLER = "STRAGGLER"
    SDC = "SDC"
    SLOWDOWN = "SLOWDOWN"
    NODE_LOSS = "NODE_LOSS"


class Status(str, Enum):
    """Result of C3 (SCOUT §2). AGREE: all peers match, nobody is an outlier."""

    AGREE = "AGREE"
    ATTRIBUTED = "ATTRIBUTED"
    INCONCLUSIVE = "INCONCLUSIVE"


class State(str, Enum):
    OPEN = "OPEN"
    CONFIRMED = "CONFIRMED"
    RESOLVED = "RESOLVED"
    SUPPRESSED = "SUPPRESSED"


class Cause(str, Enum):
    RANK_STALLED = "RANK_STALLED"
    PROCESS_DEAD = "PROCESS_DEAD"
    PROCESS_STOPPED = "PROCESS_STOPPED"
    NODE_UNREACHABLE = "NODE_UNREACHABLE"
    COLLECTIVE_MISMATCH = "COLLECTIVE_MISMATCH"
    COLLECTIVE_MISSING = "COLLECTIVE_MISSING"
    COLLECTIVE_ORDER = "COLLECTIVE_ORDER"
    DEVICE_STALL = "DEVICE_STALL"
    GROUP_STALL = "GROUP_STALL"
    STORE_WAIT = "STORE_WAIT"
    COMPUTE_STRAGGLER = "COMPUTE_STRAGGLER"
    INPUT_STRAGGLER = "INPUT_STRAGGLER"
    COMM_STRAGGLER_NODE = "COMM_STRAGGLER_NODE"
    COMM_STRAGGLER_LINK = "COMM_STRAGGLER_LINK"
    COMM_STRAGGLER_NETWORK = "COMM_STRAGGLER_NETWORK"
    COMM_STRAGGLER_CLUSTER = "COMM_STRAGGLER_CLUSTER"
    GROUP_SLOWDOWN = "GROUP_SLOWDOWN"
    SDC_OUTPUT = "SDC_OUTPUT"
    SDC_GRADIENT = "SDC_GRADIENT"
    SDC_PARAMETER = "SDC_PARAMETER"
    SDC_OPTIMIZER = "SDC_OPTIMIZER"
    SDC_BROADCAST = "SDC_BROADCAST"
    STATE_DIVERGENCE = "STATE_DIVERGENCE"
    NONFINITE = "NONFINITE"


class Scope(str, Enum):
    RANK = "RANK"
    NODE = "NODE"
    GROUP = "GROUP"
    JOB = "JOB"


class Action(str, Enum):
    NONE = "NONE"
    OBSERVE = "OBSERVE"
    RESTART_IN_PLACE = "RESTART_IN_PLACE"
    REPLACE_NODE = "REPLACE_NODE"
    DIAGNOSE_HARDWARE = "DIAGNOSE_HARDWARE"
    DIAGNOSE_NETWORK = "DIAGNOSE_NETWORK"
    FIX_PROGRAM = "FIX_PROGRAM"


@dataclass(frozen=True, slots=True)
class Implicated:
    rank: int
    node: str
    pid: int
    device: str
    reason: str


class Cleared(NamedTuple):
    """A rank that the verdict acquits. ``waits_for``: the ranks it waited for, empty if for nobody. Thousands
    are made at once, a tuple in half the time of a frozen dataclass."""

    rank: int
    waits_for: tuple[int, ...]
    reason: str


class EvidenceItem(NamedTuple):
    """One line of the argument: which rank (None: all), what kind, what was seen."""

    rank: int | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class RankStack:
    rank: int
    stack: Stack


@dataclass(frozen=True, slots=True)
class RankNote:
    rank: int
    note: DeathNote


@dataclass(frozen=True, slots=True)
class Verdict:
    """One statement about the job. Times are local monotonic nanoseconds; the daemon turns them into wall
    time when it reports. ``suppressed_because`` is empty unless the state is SUPPRESSED, or OPEN while
    the limit is stretched ("busy: writing 1.0 MB/s")."""

    id: str
    job: str
    generation: int
    symptom: Symptom
    status: Status
    state: State
    cause: Cause
    scope: Scope
    phase: Phase
    operation: str
    summary: str
    action: Action
    opened_ns: int
    implicated: tuple[Implicated, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    peer_group: tuple[int, ...] = ()
    evidence: tuple[EvidenceItem, ...] = ()
    stacks: tuple[RankStack, ...] = ()
    death_notes: tuple[RankNote, ...] = ()
    suppressed_because: str = ""
    confirmed_ns: int | None = None
    closed_ns: int | None = None
    detection_latency_ns: int | None = None
    """From the onset (the last sign of progress of the first implicated rank) to the confirmation."""
    onset_ns: int | None = None
    extra: tuple[tuple[str, str], ...] = field(default=())


def verdict_id(job: str, generation: int, cause: Cause, ranks: tuple[int, ...], anchor: str) -> str:
    """Twelve hexadecimal digits; ``anchor`` says which event ("step 12", "group 0a1b seq 7")."""
    text = "\0".join([job, str(generation), cause.value, ",".join(map(str, ranks)), anchor])
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
