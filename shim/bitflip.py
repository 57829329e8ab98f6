"""One bit of one element of a tensor, turned around in place, unseen by autograd.

The element is reached through ``data``, whose changes do not count as versions: a saved output may be
corrupted without the backward pass refusing it, as broken hardware would do it. Any strides, any dtype; of a
complex number the real part.
"""

from __future__ import annotations

from typing import Final

import torch

INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes of an element."""

MANTISSA_BITS: Final = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}


def flip(tensor: torch.Tensor, element: int, bit: int) -> torch.Tensor:
    """The same tensor, in which bit ``bit`` (0: the lowest) of element ``element`` is turned around.

    Both numbers are taken modulo what there is. An empty tensor is left alone.
    """
    raw = tensor.data
    if raw.is_complex():
        raw = torch.view_as_real(raw)[..., 0]
    if not raw.numel():
        return tensor
    at = _place(element % raw.numel(), tuple(raw.shape))
    size = raw.element_size()
    bit %= 8 * size
    one = raw[at].clone().reshape(1)
    if one.dtype is torch.bool:
        raw[at] = not bool(one)
        return tensor
    integers = one.view(INTEGERS[size])
    mask = 1 << bit if bit < 8 * size - 1 or size == 1 else -(1 << bit)  # the sign bit of a signed integer
    integers ^= mask
    raw[at] = integers.view(one.dtype)[0]
    return tensor


def spoil(tensor: torch.Tensor, element: int) -> torch.Tensor:
    """The same tensor with NaN in one element; whole numbers get their largest bit turned around."""
    if not tensor.dtype.is_floating_point:
        return flip(tensor, element, 8 * tensor.element_size() - 1)
    if tensor.numel():
        tensor.data[_place(element % tensor.numel(), tuple(tensor.shape))] = float("nan")
    return tensor


def _place(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The indices of the element in row-major order."""
    indices = []
    for size in reversed(shape):
        element, index = divmod(element, size)
        indices.append(index)
    return tuple(reversed(indices))
