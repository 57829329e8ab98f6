"""The raw bytes of a tensor: in logical (row-major) order, without copying where they already lie that way.

Whatever lies otherwise (transposed, strided, expanded, lazily conjugated or negated) is copied piece by
piece, so that the memory this takes beside the trainer's is bounded whatever the tensor's size. Copies go
through integer types of equal width: they keep the bits of a NaN, and work for element types that torch
itself cannot copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Final

import torch

PIECE_BYTES: Final = 8 << 20
"""Larger than a core's cache, so that the cost of a piece's Python is nothing beside its copy."""

_RAW: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
_READ_ONLY: Final = 0x100  # PyBUF_READ

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


def memory(tensor: torch.Tensor) -> memoryview:
    """A read-only view of a contiguous host tensor's bytes; valid while the tensor lives and is not resized.

    Neither numpy nor DLPack: the first need not be installed and knows no bfloat16, the second refuses
    tensors that require gradients.
    """
    if tensor.numel() == 0:
        return memoryview(b"")
    view: memoryview = _view(tensor.data_ptr(), tensor.numel() * tensor.element_size(), _READ_ONLY)
    return view


def plain(tensor: torch.Tensor) -> bool:
    """Whether the memory holds the logical bytes in logical order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def pieces(tensor: torch.Tensor, limit: int = PIECE_BYTES) -> Iterator[torch.Tensor]:
    """Flat uint8 tensors, on the tensor's device, whose concatenation is its bytes in logical order.

    What is plain comes as a view, in one piece; all else in copies of at most ``limit`` bytes.
    """
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return
    if plain(tensor) or size <= limit or tensor.dim() == 0:
        yield _flat(tensor)
        return
    row = size // tensor.shape[0]
    if row > limit:
        for index in range(tensor.shape[0]):
            yield from pieces(tensor[index], limit)
        return
    step = limit // row
    for first in range(0, tensor.shape[0], step):
        yield from pieces(tensor[first : first + step], limit)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    settled = tensor.detach().resolve_conj().resolve_neg()
    return settled.view(_RAW[settled.element_size()]).contiguous().reshape(-1).view(torch.uint8)
