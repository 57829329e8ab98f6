"""How an all_to_all is split: elements that this rank sends to each member and expects from each.

Splits may legally differ between members, so they are no part of the fingerprint; but what one member sends
another, that other must expect. They are published beside the call (of large groups the first members), and
the agent compares them edge by edge. Gloo does not: a rank that gets more than it expects aborts, though it
may be innocent, and one that gets less goes on with garbage.

Splits count rows of the first dimension; without splits the rows are dealt out evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from scoutd.proto.shm import MAX_SPLITS, pack_splits

Splits = tuple[int, ...]

_CACHE_LIMIT: Final = 256
_packed: dict[tuple[Splits, Splits], bytes] = {}


def packed_splits(operation: str, given: Mapping[str, Any], size: int) -> bytes:
    """The call's splits as CALLS stores them; empty where they are not known.

    ``size``: members of the group.
    """
    if operation == "all_to_all":
        sends, receives = _of_lists(given)
    elif operation == "all_to_all_single":
        sends, receives = _of_rows(given, size)
    else:
        return b""
    if not sends or not receives:
        return b""
    key = sends, receives
    found = _packed.get(key)
    if found is None:
        if len(_packed) >= _CACHE_LIMIT:
            _packed.clear()
        found = _packed[key] = pack_splits(sends, receives)
    return found


def _of_lists(given: Mapping[str, Any]) -> tuple[Splits, Splits]:
    return _lengths(given.get("input_tensor_list")), _lengths(given.get("output_tensor_list"))


def _lengths(tensors: Any) -> Splits:
    if not isinstance(tensors, (list, tuple)):
        return ()
    return tuple(tensor.numel() for tensor in tensors[:MAX_SPLITS])


def _of_rows(given: Mapping[str, Any], size: int) -> tuple[Splits, Splits]:
    """The public call has both tensors; the functional one has its input only, named ``self``."""
    source = given.get("input", given.get("self"))
    target = given.get("output")
    sends = _rows(source, given.get("input_split_sizes"), size)
    receives = _rows(source if target is None else target, given.get("output_split_sizes"), size)
    return sends, receives


def _rows(tensor: Any, rows: Sequence[int] | None, size: int) -> Splits:
    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
        return ()
    length = int(tensor.shape[0])
    width = tensor.numel() // length if length else 0
    if not rows:
        return (length // size * width,) * min(size, MAX_SPLITS)
    return tuple(int(count) * width for count in rows[:MAX_SPLITS])
