"""A small Megatron-like job that runs until nobody can go on, and the dumps that its recorders would write.

``Cluster(tp, dp, pp, experts)`` has tensor, data, pipeline and expert groups; every rank runs one program per
step: micro-batches forward, micro-batches backward, gradients, a job-wide reduction. Hosts enqueue ahead
of their devices and stop at results that they need (``sync``). Devices execute in order; a collective is
finished when all members' devices have come to it, a transfer when both have.

Faults: ``hang`` stops a rank's host before its n-th call of a step; ``blind`` is a device error from which on
nothing is seen to finish, although the kernels ran; ``freeze`` is a device that executes nothing any more.
Only what the recorder's ring still holds is dumped: unfinished calls, or with ``ring`` also finished ones.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SYMMETRIC = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce")
RAW = {
    "all_gather": "_all_gather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_all",
    "all_reduce": "all_reduce",
}
STEPS = 3


@dataclass(frozen=True)
class Group:
    name: str
    description: str
    members: tuple[int, ...]


@dataclass(frozen=True)
class Op:
    """``peer``: global rank of a transfer. ``sync``: the host waits for it."""

    kind: str
    group: Group
    peer: int | None = None
    sync: bool = False


@dataclass
class Record:
    op: Op
    record_id: int
    collective: int
    p2p: int
    op_id: int
    done: bool = False
    seen: bool = False


@dataclass
class Rank:
    rank: int
    program: list[Op]
    records: list[Record] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    transfers: dict[str, int] = field(default_factory=dict)
    front: int = 0
    hang_at: int | None = None
    blind_from: int | None = None
    frozen_at: int | None = None

    @property
    def stopped(self) -> bool:
        """The host does not enqueue: hung, at its end, or waiting for a result."""
        if len(self.records) >= len(self.program) or len(self.records) == self.hang_at:
            return True
        return bool(self.records) and self.records[-1].op.sync and not self.records[-1].seen

    def enqueue(self) -> None:
        op = self.program[len(self.records)]
        name = op.group.name
        counter = self.counts if op.peer is None else self.transfers
        counter[name] = counter.get(name, 0) + 1
        c, p = self.counts.get(name, 0), self.transfers.get(name, 0)
        self.records.append(Record(op, len(self.records), c, p if op.peer is not None else 0, c + p))


class Cluster:
    def __init__(self, tp: int, dp: int, pp: int, experts: bool = True, micro: int = 2) -> None:
        self.tp, self.dp, self.pp, self.experts, self.micro = tp, dp, pp, experts, micro
        self.size = tp * dp * pp
        self.groups: list[Group] = []
        everybody = tuple(range(self.size))
        self.world = self._group("default_pg", everybody)
        axes: dict[str, Callable[[int], tuple[int, ...]]] = {
            "DATA_PARALLEL_GROUP": lambda r: self._where(r, "tp", "pp"),
            "TENSOR_MODEL_PARALLEL_GROUP": lambda r: self._where(r, "dp", "pp"),
            "PIPELINE_MODEL_PARALLEL_GROUP": lambda r: self._where(r, "tp", "dp"),
            "EXPERT_MODEL_PARALLEL_GROUP": lambda r: self._where(r, "pp"),
        }
        self.of: dict[str, dict[int, Group]] = {name: {} for name in axes}
        for name, members in axes.items():
            for rank in everybody:
                if rank not in self.of[name]:
                    group = self._group(name, members(rank))
                    self.of[name].update(dict.fromkeys(group.members, group))
        self.ranks = {r: Rank(r, list(self._program(r))) for r in everybody}

    def hang(self, rank: int, op: int, step: int = STEPS - 1) -> None:
        """The host of ``rank`` stops before the ``op``-th call of a step."""
        each = self.ranks[rank]
        each.hang_at = step * (len(each.program) // STEPS) + op

    def blind(self, rank: int, op: int, step: int = STEPS - 1) -> None:
        each = self.ranks[rank]
        each.blind_from = step * (len(each.program) // STEPS) + op

    def freeze(self, rank: int, op: int, step: int = STEPS - 1) -> None:
        each = self.ranks[rank]
        each.frozen_at = step * (len(each.program) // STEPS) + op

    def run(self) -> Cluster:
        """Until nobody can go on."""
        while self._enqueue() | self._execute():
            pass
        return self

    def write(
        self,
        folder: Path,
        name: str = "_dump_{rank}",
        as_json: bool = False,
        ring: bool = False,
        config: bool = True,
        status: bool = True,
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for rank in self.ranks.values():
            trace = self.trace(rank, ring, config, status, as_json)
            data = json.dumps(trace).encode() if as_json else pickle.dumps(trace, protocol=2)
            (folder / name.format(rank=rank.rank, node=rank.rank // 4)).write_bytes(data)
        return folder

    def trace(self, rank: Rank, ring: bool, config: bool, status: bool, as_json: bool) -> dict[str, object]:
        mine = [g for g in self.groups if rank.rank in g.members]
        keys = {g.name: str(i + 3 * (i > 1)) for i, g in enumerate(mine)}  # a counter of its own, with a gap
        entries = [self._entry(rank.rank, r, keys, as_json) for r in rank.records if ring or not r.seen]
        trace: dict[str, object] = {"version": "2.9", "entries": entries}
        if config:
            trace["pg_config"] = {
                g.name: {"name": g.name, "desc": g.description, "ranks": str(list(g.members))} for g in mine
            }
        if status:
            trace["pg_status"] = {keys[g.name]: self._status(rank, g) for g in mine}
        return trace

    def _status(self, rank: Rank, group: Group) -> dict[str, int]:
        """The last of either counter, as torch has it: of a pipeline the number of transfers."""
        records = [r for r in rank.records if r.op.group is group]
        enqueued = max((r.p2p or r.collective for r in records), default=0)
        completed = max((r.p2p or r.collective for r in records if r.seen), default=0)
        return {
            "last_enqueued_collective": enqueued,
            "last_completed_collective": completed,
            "last_started_collective": -1,
        }

    def _entry(self, rank: int, record: Record, keys: dict[str, str], as_json: bool) -> dict[str, object]:
        op = record.op
        into, out = [4, 8], [4, 8]
        if op.kind == "all_gather":
            out = [4 * len(op.group.members), 8]
        elif op.kind == "reduce_scatter":
            into = [4 * len(op.group.members), 8]
        pair = (op.group.name, op.group.description)
        return {
            "record_id": record.record_id,
            "pg_id": int(keys[op.group.name]),
            "process_group": list(pair) if as_json else pair,
            "collective_seq_id": record.collective,
            "p2p_seq_id": record.p2p,
            "op_id": record.op_id,
            "profiling_name": f"nccl:{self._name(rank, record.op)}",
            "time_created_ns": 1_700_000_000_000_000_000 + record.record_id * 1_000_000,
            "time_discovered_started_ns": 0 if as_json else None,
            "time_discovered_completed_ns": 0 if as_json else None,
            "input_sizes": [into],
            "input_dtypes": ["BFloat16"],
            "output_sizes": [out],
            "output_dtypes": ["BFloat16"],
            "state": "completed" if record.seen else "scheduled",
            "retired": record.seen,
            "is_p2p": op.peer is not None,
            "timeout_ms": 180000,
        }

    def _name(self, rank: int, op: Op) -> str:
        if op.peer is None:
            return RAW[op.kind]
        mine, peer = op.group.members.index(rank), op.group.members.index(op.peer)
        return f"{op.kind} {mine}{'->' if op.kind == 'send' else '<-'}{peer}"

    def _program(self, rank: int) -> Iterator[Op]:
        tensor = self.of["TENSOR_MODEL_PARALLEL_GROUP"][rank]
        pipe = self.of["PIPELINE_MODEL_PARALLEL_GROUP"][rank]
        stage = pipe.members.index(rank)
        before = pipe.members[stage - 1] if stage > 0 else None
        after = pipe.members[stage + 1] if stage + 1 < len(pipe.members) else None
        for _ in range(STEPS):
            for source, target in [(before, after)] * self.micro + [(after, before)] * self.micro:
                if source is not None:
                    yield Op("recv", pipe, source)
                yield Op("all_gather", tensor)
                if self.experts:
                    experts = self.of["EXPERT_MODEL_PARALLEL_GROUP"][rank]
                    yield Op("all_to_all", experts, sync=True)
                    yield Op("all_to_all", experts)
                yield Op("reduce_scatter", tensor, sync=not self.experts)
                if target is not None:
                    yield Op("send", pipe, target)
            yield Op("all_reduce", self.of["DATA_PARALLEL_GROUP"][rank])
            yield Op("all_reduce", self.world, sync=True)

    def _group(self, description: str, members: tuple[int, ...]) -> Group:
        group = Group(str(len(self.groups)), description, members)
        self.groups.append(group)
        return group

    def _where(self, rank: int, *same: str) -> tuple[int, ...]:
        """Ranks with these coordinates equal; rank = tp + tp_size · (dp + dp_size · pp)."""
        mine = self._coordinates(rank)
        return tuple(r for r in range(self.size) if all(self._coordinates(r)[a] == mine[a] for a in same))

    def _coordinates(self, rank: int) -> dict[str, int]:
        return {
            "tp": rank % self.tp,
            "dp": rank // self.tp % self.dp,
            "pp": rank // (self.tp * self.dp),
        }

    def _enqueue(self) -> bool:
        moved = False
        for rank in self.ranks.values():
            while not rank.stopped:
                rank.enqueue()
                moved = True
        return moved

    def _execute(self) -> bool:
        moved = False
        for rank in self.ranks.values():
            while (record := self._at(rank)) is not None and self._meets(rank, record):
                for each, other in self._partners(rank, record):
                    other.done = True
                    each.front += 1
                    other.seen = each.blind_from is None or other.record_id < each.blind_from
                moved = True
        return moved

    def _at(self, rank: Rank) -> Record | None:
        if rank.front == rank.frozen_at or rank.front >= len(rank.records):
            return None
        return rank.records[rank.front]

    def _meets(self, rank: Rank, record: Record) -> bool:
        members = record.op.group.members if record.op.peer is None else (rank.rank, record.op.peer)
        return len(self._partners(rank, record)) == len(members)

    def _partners(self, rank: Rank, record: Record) -> list[tuple[Rank, Record]]:
        """Members whose devices are at the counterpart of this record, the rank itself included."""
        op = record.op
        found = []
        for member in op.group.members if op.peer is None else (rank.rank, op.peer):
            other = self._at(self.ranks[member])
            if other is not None and other.op.group is op.group and self._same(op, rank, other, member):
                found.append((self.ranks[member], other))
        return found

    def _same(self, op: Op, rank: Rank, other: Record, member: int) -> bool:
        if op.peer is None:
            return other.op.kind == op.kind
        if member == rank.rank:
            return True
        opposite = "recv" if op.kind == "send" else "send"
        return other.op.kind == opposite and other.op.peer == rank.rank
