"""Whether a tensor holds a NaN or an infinity, at the cost of reading it once.

The least and the greatest element tell: both are finite if and only if all elements are, because ``aminmax``
hands a NaN on. It runs at the speed of memory and allocates nothing, where ``isfinite().all()`` writes
several tensors of the same size and a sum overflows on large finite values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

_NARROW: Final = 1
"""Bytes; torch reduces no floating type of this width, it is widened piece by piece."""
_AT_ONCE: Final = 1 << 20


def all_finite(tensor: torch.Tensor) -> torch.Tensor:
    """A boolean scalar on the tensor's device; true for integers and for empty tensors."""
    dtype = tensor.dtype
    if tensor.numel() == 0 or not (dtype.is_floating_point or dtype.is_complex) or _never(dtype):
        return torch.ones((), dtype=torch.bool, device=tensor.device)
    if dtype.is_complex:
        tensor = torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)
    ends = [end for part in _wide(tensor) for end in torch.aminmax(part)]
    return torch.isfinite(torch.stack(ends)).all()


def _never(dtype: torch.dtype) -> bool:
    """Four-bit floats have neither NaN nor infinity, and no conversion."""
    return "float4" in str(dtype)


def _wide(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    if tensor.element_size() > _NARROW:
        yield tensor
        return
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        yield flat[start : start + _AT_ONCE].to(torch.float32)
