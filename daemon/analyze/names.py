"""Names and sizes of recorded collectives, as the public calls would have them.

The recorder calls the same collective by the name of the backend's method, which differs between versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scoutd.agent.evidence import Fingerprint
from scoutd.daemon.analyze.dump import Entry

OPERATIONS: Final = {
    "allreduce": "all_reduce",
    "ALLREDUCE": "all_reduce",
    "allgather": "all_gather",
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_base": "all_to_all_single",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "all_reduce_barrier": "barrier",
}
DTYPES: Final = {
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
}
UNEQUAL: Final = frozenset(
    {"scatter", "gather", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_single", "coalesced"}
)
"""Collectives whose recorded inputs may legally differ between members."""

WHOLE: Final = "coalesced"


def operation(entry: Entry) -> str:
    return OPERATIONS.get(entry.operation, entry.operation)


def merged(entries: Sequence[Entry]) -> tuple[Entry, str]:
    """The entry that stands for one sequence, and its operation.

    Parts of a coalesced collective have entries of their own that nobody retires; the one for the whole knows
    its state, the parts know what it does.
    """
    whole = next((e for e in entries if e.operation == WHOLE), entries[-1])
    parts = {operation(e) for e in entries if e.operation != WHOLE}
    return whole, parts.pop() if len(parts) == 1 else WHOLE


def fingerprint(entries: Sequence[Entry], name: str) -> Fingerprint:
    """What all members must agree on; sizes only where they must."""
    parts = [e for e in entries if e.operation != WHOLE]
    numel = None if name in UNEQUAL or not parts else sum(_numel(size) for e in parts for size in e.sizes)
    kind = parts[0].dtype if parts else ""
    return Fingerprint(name, DTYPES.get(kind, kind), numel, None)


def shape(entries: Sequence[Entry]) -> str:
    first = next((e.sizes[0] for e in entries if e.sizes), ())
    return f"[{', '.join(map(str, first[:8]))}]" if first else ""


def _numel(size: Sequence[int]) -> int:
    total = 1
    for n in size:
        total *= n
    return total
