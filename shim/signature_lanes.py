"""The lane sum: a digest of bytes that a wide device computes in one pass, in any order.

The bytes, padded with zeros to a multiple of eight (their true number is part of the shape), are lanes
x_0, x_1, … of 64 bits, little-endian. With F the finaliser of splitmix64, the digest is

    sum over i of  F(x_i xor F((i + 1) * GOLDEN))   modulo 2^64

F is a bijection in which every input bit moves every output bit, so any change inside one lane changes the
sum for certain, and changes of several lanes, moves included, cancel with probability 2^-64. Cheaper sums do
not have this: multilinear ones lose pairs of sign flips, folds with even multipliers the top bits.

The sum does not depend on the order of its terms: threads, blocks and pieces add up without a fixed order,
and the result is the same on every device. On CUDA a Triton kernel computes it (``signature_triton``); this
file has the same in plain torch, for accelerators without Triton, and as the reference.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from scoutd.shim.signature_bytes import pieces, plain

LANE: Final = 8
GOLDEN: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, made odd: splitmix64's step."""
FIRST: Final = 0xBF58476D1CE4E5B9
SECOND: Final = 0x94D049BB133111EB
"""Multipliers of splitmix64's finaliser (Stafford's variant 13 of MurmurHash3's)."""

_AT_ONCE: Final = 1 << 18
"""Lanes per step in plain torch, whose temporaries take a few times that."""

LaneSum = Callable[[torch.Tensor, int], torch.Tensor]
"""(lanes, index of the first) → their part of the digest, an int64 scalar on their device."""


def lanes_digest(tensor: torch.Tensor, lane_sum: LaneSum | None = None) -> torch.Tensor:
    """The digest of a dense tensor's bytes, an int64 scalar on its device; the host does not wait for it."""
    add = lane_sum or _lane_sum_for(tensor.device.type)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    first = 0
    for lanes in _lanes(tensor):
        total += add(lanes, first)
        first += lanes.numel()
    return total


def plain_lane_sum(lanes: torch.Tensor, first: int) -> torch.Tensor:
    """``LaneSum`` in plain torch, for any device."""
    total = torch.zeros((), dtype=torch.int64, device=lanes.device)
    for start in range(0, lanes.numel(), _AT_ONCE):
        part = lanes[start : start + _AT_ONCE]
        total += mixed(part, first + start).sum()
    return total


def mixed(lanes: torch.Tensor, first: int) -> torch.Tensor:
    """The terms of the sum, one a lane."""
    index = torch.arange(first + 1, first + 1 + lanes.numel(), dtype=torch.int64, device=lanes.device)
    return _finalise(lanes ^ _finalise(index * _signed(GOLDEN)))


def _finalise(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift(x, 30)) * _signed(FIRST)
    x = (x ^ _shift(x, 27)) * _signed(SECOND)
    return x ^ _shift(x, 31)


def _shift(x: torch.Tensor, by: int) -> torch.Tensor:
    """Logical: torch's own keeps the sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def _signed(constant: int) -> int:
    return constant - (1 << 64) if constant >> 63 else constant


def _lane_sum_for(device: str) -> LaneSum:
    return (_triton() if device == "cuda" else None) or plain_lane_sum


@functools.cache
def _triton() -> LaneSum | None:
    """The kernel, None where Triton is missing."""
    try:
        module: Any = importlib.import_module("scoutd.shim.signature_triton")
    except ImportError:
        return None
    found: LaneSum = module.lane_sum
    return found


def _lanes(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor's bytes as int64 lanes, in order; only the last lane of all may be padded."""
    rest: torch.Tensor | None = None
    for piece in pieces(tensor) if _aligned(tensor) else _realigned(tensor):
        joined = piece if rest is None else torch.cat((rest, piece))
        whole = joined.numel() // LANE * LANE
        if whole:
            yield joined[:whole].view(torch.int64)
        rest = joined[whole:].clone() if whole < joined.numel() else None
    if rest is not None:
        padded = torch.zeros(LANE, dtype=torch.uint8, device=tensor.device)
        padded[: rest.numel()] = rest
        yield padded.view(torch.int64)


def _aligned(tensor: torch.Tensor) -> bool:
    """Whether what lies as it is can be read in lanes; what is copied always can."""
    offset = tensor.storage_offset() * tensor.element_size()
    return not plain(tensor) or (offset % LANE == 0 and tensor.data_ptr() % LANE == 0)


def _realigned(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A contiguous tensor that begins between two lanes, copied piece by piece."""
    for piece in pieces(tensor):
        for start in range(0, piece.numel(), _AT_ONCE * LANE):
            yield piece[start : start + _AT_ONCE * LANE].clone()
