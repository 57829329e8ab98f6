"""The lane sum (``signature_lanes``) as a Triton kernel.

Each program takes every ``programs``-th block of lanes, adds up what they mix to, and stores one partial
sum; torch adds the partial sums on the device. Nothing depends on the order, so the grid may have any size:
it is large enough to fill a device and small enough that the partial sums cost nothing.

This module imports Triton; it is itself imported only where a CUDA tensor is signed. With TRITON_INTERPRET=1
in the environment before that import, the kernel runs on the CPU: that is how it is tested. On a GPU it has
not been run.
"""

from __future__ import annotations

from typing import Final

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

BLOCK: Final = 2048
"""Lanes: 16 KiB, eight loads a thread in flight."""
PROGRAMS: Final = 1024
"""A few for each multiprocessor of any present device."""


@triton.jit
def _finalise(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> 30)) * tl.full((), 0xBF58476D1CE4E5B9, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full((), 0x94D049BB133111EB, tl.uint64)
    return x ^ (x >> 31)


@triton.jit  # type: ignore[untyped-decorator]
def _partial_sums(lanes, partial, count, first, programs, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.uint64)
    for start in range(program * BLOCK, count, programs * BLOCK):
        index = start + tl.arange(0, BLOCK).to(tl.int64)
        inside = index < count
        lane = tl.load(lanes + index, mask=inside, other=0).to(tl.uint64, bitcast=True)
        position = (first + index + 1).to(tl.uint64) * tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
        mixed = _finalise(lane ^ _finalise(position))
        total += tl.where(inside, mixed, tl.zeros((BLOCK,), tl.uint64))
    tl.store(partial + program, tl.sum(total, 0).to(tl.int64, bitcast=True))


def lane_sum(lanes: torch.Tensor, first: int) -> torch.Tensor:
    """``signature_lanes.LaneSum``: int64 lanes of any number, on a CUDA device or under the interpreter."""
    count = lanes.numel()
    programs = max(1, min(PROGRAMS, triton.cdiv(count, BLOCK)))
    partial = torch.empty(programs, dtype=torch.int64, device=lanes.device)
    with torch.cuda.device_of(lanes):  # type: ignore[no-untyped-call]
        _partial_sums[(programs,)](lanes, partial, count, first, programs, BLOCK=BLOCK)
    return partial.sum()
