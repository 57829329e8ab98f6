"""The Flight Recorder: collectives that no public call shows (DDP's reducer, FSDP, compiled code).

Torch keeps a ring of recent collectives in C++. There are two of them, for Gloo on CPU and for NCCL (CUDA
builds only, untested here); both give a pickle with the same fields. An entry is unfinished while
``retired`` is false. A dump costs a millisecond to some tens of them, so it is taken only when progress is
silent. Names are brought to those of the public calls ("gloo:all_reduce" → "all_reduce").

Under ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` collectives go through a wrapper that the recorder does not see.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import torch

from scoutd.proto.shm import UNKNOWN_U64

UNEQUAL_INPUTS: Final = frozenset({"scatter", "gather", "all_to_all", "all_to_all_single", "reduce_scatter"})
"""Collectives whose recorded inputs differ between members by nature (only the root has some)."""

MONITORED_BARRIER_COUNTS: Final = 2
"""Gloo's ``collective_seq_id`` grows by its two tags, on every rank (seen on torch 2.13)."""

_NAMES: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_into_tensor": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_base": "all_to_all_single",
    "all_to_all": "all_to_all",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "ALLREDUCE": "all_reduce",
}
_DTYPES: Final = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "Float8_e4m3fn": "float8_e4m3fn",
    "Float8_e5m2": "float8_e5m2",
}


class Entry(NamedTuple):
    """One collective of the ring. ``offset``: P2P calls of this rank counted in the group's own counter
    when it was enqueued. ``incarnation`` tells a destroyed group from a later one of the same name."""

    group_name: str
    sequence: int
    retired: bool
    created_age_ns: int
    operation: str
    dtype: str
    shape: str
    numel: int
    offset: int
    incarnation: int = 0

    @property
    def subject(self) -> str:
        """What members must agree on, as far as a recorder tells."""
        return f"{self.operation}|{self.dtype}|{self.numel}"


def canonical_operation(profiling_name: str) -> str:
    """The public name of a recorded collective."""
    name = profiling_name.rpartition(":")[2]
    return _NAMES.get(name, name)


def canonical_dtype(name: str) -> str:
    return _DTYPES.get(name, name)


def sources() -> dict[str, Callable[..., bytes]]:
    """The recorders that this build of torch has, by backend."""
    c10d = torch._C._distributed_c10d
    found = {"gloo": "_dump_fr_trace", "nccl": "_dump_nccl_trace"}
    return {backend: getattr(c10d, name) for backend, name in found.items() if hasattr(c10d, name)}


def is_blind() -> bool:
    """Whether no recorder can see this process's collectives."""
    return not sources() or os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"


def dump() -> list[Entry]:
    """Every entry of every recorder, oldest first. Raises whatever a recorder raises."""
    entries: list[Entry] = []
    for read in sources().values():
        raw = read(True, False, False)
        entries += parse(pickle.loads(raw), time.time_ns())  # our own process wrote it
    return entries


def parse(trace: dict[str, Any], now_wall_ns: int) -> list[Entry]:
    """Collectives of a dump; P2P entries and malformed ones are left out."""
    return [entry for raw in trace.get("entries", ()) if (entry := _entry(raw, now_wall_ns)) is not None]


def _entry(raw: dict[str, Any], now_wall_ns: int) -> Entry | None:
    sequence = raw.get("collective_seq_id")
    group = raw.get("process_group") or ("",)
    if raw.get("is_p2p") or not isinstance(sequence, int) or sequence <= 0:
        return None
    sizes = raw.get("input_sizes") or []
    dtypes = raw.get("input_dtypes") or [""]
    operation = canonical_operation(str(raw.get("profiling_name", "")))
    numel = UNKNOWN_U64 if operation in UNEQUAL_INPUTS else sum(_product(size) for size in sizes)
    return Entry(
        group_name=str(group[0]),
        sequence=sequence,
        retired=bool(raw.get("retired")),
        created_age_ns=max(0, now_wall_ns - int(raw.get("time_created_ns") or now_wall_ns)),
        operation=operation,
        dtype=canonical_dtype(str(dtypes[0])),
        shape="[" + ", ".join(map(str, sizes[0][:8])) + "]" if sizes else "",
        numel=numel,
        offset=max(0, int(raw.get("op_id") or 0) - sequence),
        incarnation=int(raw.get("pg_id") or 0),
    )


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def of_living_groups(entries: Iterable[Entry], enqueued: Mapping[str, int]) -> list[Entry]:
    """Entries of the groups that exist, given how far this rank has come in each: the ring outlives a
    destroyed group, and names are used again."""
    kept = [entry for entry in entries if entry.group_name in enqueued]
    newest: dict[str, int] = {}
    furthest: dict[tuple[str, int], int] = {}
    for entry in kept:
        key = entry.group_name, entry.incarnation
        newest[entry.group_name] = max(newest.get(entry.group_name, 0), entry.incarnation)
        furthest[key] = max(furthest.get(key, 0), entry.sequence)
    return [
        entry
        for entry in kept
        if entry.incarnation == newest[entry.group_name]
        and furthest[entry.group_name, entry.incarnation] <= enqueued[entry.group_name]
    ]


def retired_by_group(entries: Iterable[Entry]) -> dict[str, int]:
    """Per group: the highest sequence up to which nothing recorded is unfinished."""
    done: dict[str, int] = {}
    open_from: dict[str, int] = {}
    for entry in entries:
        name = entry.group_name
        if entry.retired:
            done[name] = max(done.get(name, 0), entry.sequence)
        else:
            open_from[name] = min(open_from.get(name, entry.sequence), entry.sequence)
    return {
        name: min(done.get(name, 0), open_from.get(name, done.get(name, 0) + 1) - 1)
        for name in done.keys() | open_from.keys()
    }
