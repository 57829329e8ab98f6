"""Process groups: who is in them, and how far this rank has come in each.

A group is identified job-wide by a hash of its name and its sorted global ranks, computed once; after that
every lookup is one dictionary access by the object's identity, whatever the group's size. Entries vanish
with the process-group object (a weak reference tells), and ``sweep`` marks destroyed groups.

*Enqueued* is the number of collectives this rank has entered. Backends count them
(``_get_sequence_number_for_group``), DDP's C++ reducer and FSDP included; Gloo's counter also counts this
rank's P2P calls and the messages inside a monitored barrier (another number on each rank), which are
subtracted. Where a backend has no counter, public calls are counted instead.
"""

from __future__ import annotations

import bisect
import hashlib
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch.distributed.distributed_c10d as c10d

from scoutd.proto import shm
from scoutd.shim.shmfile import ShmFile

_COUNTERS_AT: Final = shm.COUNTERS.offset
_COPY: Final = shm.COUNTERS.copy_bytes
_PACK: Final = shm.COUNTERS.codec.struct.pack
_LENGTH: Final = shm.COUNTERS.codec.struct.size
_seal: Final = shm.HEAD.pack
_crc: Final = zlib.crc32
_now: Final = time.monotonic_ns
MAX_MEETINGS: Final = 16
PARTS_KEPT: Final = 1024
"""Monitored barriers of a group that are remembered; the recorder's ring reaches back about as far."""


def runs_of(ranks: Iterable[int]) -> tuple[tuple[int, int, int], ...]:
    """Ranks in order as (start, stride, count); a run of one has stride 0."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs:
            start, stride, count = runs[-1]
            if count == 1 and rank > start:
                runs[-1] = [start, rank - start, 2]
                continue
            if count > 1 and rank == start + count * stride:
                runs[-1][2] += 1
                continue
        runs.append([rank, 0, 1])
    return tuple((start, stride, count) for start, stride, count in runs)


def group_id(name: str, ranks: Iterable[int]) -> int:
    """64 bits, the same in every process that holds this group; never 0."""
    text = name + "\0" + ",".join(map(str, sorted(ranks)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1


class GroupState:
    """One group of this process: identity, slot and counters.

    ``p2p``: what the backend has counted so far and is no collective: this rank's P2P calls and the inside
    of monitored barriers (``parts``: the counter at the end of each, and how many there were). ``calls``:
    public collectives so far. ``highest``: the highest sequence published as enqueued: a call is published
    before the backend counts it, and the publisher's poll must not take that back. ``frozen``: a monitored
    barrier is under way, the backend's counter means nothing.
    """

    __slots__ = (
        "_counter",
        "backend",
        "calls",
        "counts_p2p",
        "frozen",
        "group",
        "has_counter",
        "highest",
        "name",
        "object_id",
        "p2p",
        "parts",
        "rank_of",
        "retired",
        "sequence",
        "size",
        "slot",
        "templates",
    )

    def __init__(self, pg: Any, name: str, ranks: list[int], slot: int, backend: str) -> None:
        self.group = group_id(name, ranks)
        self.name = name
        self.size = len(ranks)
        self.slot = slot
        self.backend = backend
        self.rank_of: list[int] = ranks
        self.object_id = id(pg)
        self.p2p = 0
        self.calls = 0
        self.highest = 0
        self.frozen = False
        self.parts: deque[tuple[int, int]] = deque(maxlen=PARTS_KEPT)
        self.retired = shm.UNKNOWN_U64
        self.sequence = 0
        self.templates: dict[Any, Any] = {}
        self.counts_p2p = backend.endswith("gloo")
        self._counter = _counter_of(pg)
        self.has_counter = self._counter is not None

    def raw(self) -> int:
        """The backend's own counter, P2P included where it counts that; 0 where it has none."""
        return self._counter() if self._counter is not None else 0

    def next_sequence(self, raw: int) -> int:
        """The sequence of a public collective that is about to be entered; it counts as called."""
        self.calls += 1
        return raw + 1 - self.p2p if self.has_counter else self.calls

    def enqueued(self) -> int:
        """Collectives entered by this rank so far."""
        if self._counter is None:
            return self.calls
        return self.highest if self.frozen else max(0, self._counter() - self.p2p)

    def uncount(self, raw_before: int) -> None:
        """What the backend has counted since ``raw_before`` was the inside of a monitored barrier."""
        now = self.raw()
        if now > raw_before:
            known = self.parts[-1][1] if self.parts else 0
            self.parts.append((now, known + 1))
            self.p2p += now - raw_before
        self.highest = 0
        self.frozen = False

    def barriers_before(self, raw: int) -> int:
        """Monitored barriers that were over when the backend's counter reached ``raw``."""
        place = bisect.bisect_left(self.parts, (raw, 0))
        return self.parts[place - 1][1] if place else 0


def backend_of(pg: Any) -> str:
    """The backend whose counter the group tells. Where none was asked for, or one per device, that is NCCL if
    the group has it, and "undefined" or "cpu:gloo,cuda:nccl" for those who ask torch."""
    name = str(c10d.get_backend(pg))
    if name != "undefined" and ":" not in name:
        return name
    told = str(c10d._world.pg_backend_config.get(pg, name))
    backends = sorted({each.rpartition(":")[2] for each in told.split(",")})
    return "nccl" if "nccl" in backends else backends[0] if len(backends) == 1 else name


def _counter_of(pg: Any) -> Callable[[], int] | None:
    """The backend's own counter, None where it has none. Holds the group weakly."""
    if pg is None:
        return None
    reference = weakref.ref(pg)
    read = type(pg)._get_sequence_number_for_group
    try:
        read(pg)
    except (RuntimeError, NotImplementedError):
        return None

    def counter() -> int:
        alive = reference()
        return 0 if alive is None else read(alive)

    return counter


class Groups:
    """All groups of this process that have a slot."""

    def __init__(self, file: ShmFile) -> None:
        self._file = file
        self._by_object: dict[int, GroupState] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._gone: deque[GroupState] = deque()
        self._meetings: dict[int, GroupState] = {}
        self._free = list(range(shm.GROUPS.slots - 1, -1, -1))

    def state(self, pg: Any) -> GroupState | None:
        """The group's state (None means the default group); None for non-members and when slots ran out."""
        if pg is None:
            pg = c10d.GroupMember.WORLD
        found = self._by_object.get(id(pg))
        return found if found is not None else self._register(pg)

    def named(self, name: str) -> GroupState | None:
        for state in list(self._by_object.values()):
            if state.name == name:
                return state
        return None

    def meeting(self, name: str, ranks: list[int]) -> GroupState | None:
        """The group that stands for these ranks' meetings of this name (they have no process group yet);
        None when there are too many."""
        key = group_id(name, ranks)
        found = self._meetings.get(key)
        if found is None and self._free and len(self._meetings) < MAX_MEETINGS:
            with self._file.lock:
                found = self._meetings[key] = GroupState(None, name, ranks, self._free.pop(), "store")
                found.sequence = self._file.sequence_of(shm.COUNTERS, found.slot)
                self._forget_history(found.slot)
                self._publish(found, None, destroyed=0)
        return found

    def all(self) -> list[GroupState]:
        return [*self._by_object.values(), *self._meetings.values()]

    def sweep(self) -> None:
        """Groups made since the last sweep are known, destroyed ones are marked and give up their slot."""
        alive = {id(pg): pg for pg in list(c10d._world.pg_map)}
        for key, state in list(self._by_object.items()):
            if key not in alive:
                self._by_object.pop(key, None)
                self._gone.append(state)
        while self._gone:
            self._drop(self._gone.popleft())
        for pg in alive.values():
            self.state(pg)

    def write_counters(self, state: GroupState, enqueued: int) -> None:
        """COUNTERS of the group say ``enqueued`` as of now, or what was said before if that is higher."""
        file = self._file
        with file.lock:
            if enqueued < state.highest:
                enqueued = state.highest
            else:
                state.highest = enqueued
            state.sequence = sequence = state.sequence + 1
            payload = _PACK(state.group, enqueued, state.retired, _now())
            at = _COUNTERS_AT + (state.slot * 2 + (sequence & 1)) * _COPY
            sealed = _seal(_crc(payload, sequence & 0xFFFFFFFF), _LENGTH) + payload
            file.view[at + 8 : at + 16 + _LENGTH] = sealed
            file.words[at >> 3] = sequence

    def set_retired(self, state: GroupState, retired: int) -> None:
        """``retired`` is known to be finished; a dump of a ring that has lost old entries takes nothing
        back."""
        if state.retired == shm.UNKNOWN_U64 or retired > state.retired:
            state.retired = retired
            self.write_counters(state, state.enqueued())

    def _register(self, pg: Any) -> GroupState | None:
        name = c10d._world.pg_names.get(pg) if pg is not None else None
        if name is None or not self._free:
            return None
        with self._file.lock:
            if id(pg) in self._by_object:
                return self._by_object[id(pg)]
            ranks = list(c10d._world.pg_group_ranks[pg])
            state = GroupState(pg, str(name), ranks, self._free.pop(), backend_of(pg))
            state.sequence = self._file.sequence_of(shm.COUNTERS, state.slot)
            self._forget_history(state.slot)
            self._publish(state, pg, destroyed=0)
            key = id(pg)
            self._references[key] = weakref.ref(pg, lambda _: self._collected(key))
            self._by_object[key] = state
        return state

    def _forget_history(self, slot: int) -> None:
        """The slot's history is empty: what an earlier group of this slot did is not this one's."""
        for k in range(shm.HISTORY_DEPTH):
            self._file.words[shm.HISTORY.position(slot * shm.HISTORY_DEPTH + k, 0) >> 3] = 0

    def _publish(self, state: GroupState, pg: Any, destroyed: int) -> None:
        runs = runs_of(state.rank_of)
        record = shm.Group(
            group=state.group,
            created_ns=time.monotonic_ns(),
            size=state.size,
            my_index=_index_of(pg),
            destroyed=destroyed,
            truncated=int(len(runs) > shm.MAX_RUNS),
            name=state.name,
            description=str(getattr(pg, "group_desc", "") or ""),
            backend=state.backend,
            runs=runs[: shm.MAX_RUNS],
        )
        self._file.publish(shm.GROUPS, state.slot, record)

    def _collected(self, key: int) -> None:
        """Runs inside the garbage collector: no lock, no write."""
        self._references.pop(key, None)
        state = self._by_object.pop(key, None)
        if state is not None:
            self._gone.append(state)

    def _drop(self, state: GroupState) -> None:
        self._publish(state, None, destroyed=1)
        self._file.keep_sequence(shm.COUNTERS, state.slot, state.sequence)
        self._free.insert(0, state.slot)


def _index_of(pg: Any) -> int:
    return 0 if pg is None else max(0, int(pg.rank()))
