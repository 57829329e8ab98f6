"""How large a real argument is, so that seeded values can be about as large.

Arithmetic that is wrong only for large or small numbers does not show on values around one. So the form of a
call keeps, for every floating tensor, a power of two that brings seeded values to the root mean square of
the real ones, within a factor of sqrt(2), and whether the real ones were never negative (behind a ReLU,
pictures, times). Multiplying by a power of two rounds nothing, so seeded values stay equal on all processors.

Ranks see different data and would measure different scales, which would make their recipes different ones.
Only those of the group's first rank count (see ``roster``); without a scale values lie in [-2, 2).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch

SEEDED_RMS: Final = 2.0 / math.sqrt(3.0)
"""Of values that are uniform in [-2, 2)."""

SAMPLE: Final = 1 << 20
"""Elements that are looked at, once per recipe."""


class Scale(NamedTuple):
    """Seeded values are multiplied by 2^``exponent``; ``positive``: and taken without their sign."""

    exponent: int = 0
    positive: bool = False

    def fit(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The seeded float32 values at this scale, as far as ``dtype`` can hold them."""
        lowest, highest = _range(dtype)
        factor = 2.0 ** min(max(self.exponent, lowest), highest)
        return (values.abs_() if self.positive else values).mul_(factor)


UNSCALED: Final = Scale()


def measured(tensor: torch.Tensor) -> Scale | None:
    """The scale of a floating tensor; None where it has none (nothing in it, zeros only, a mask, NaN or
    infinity) or must not be looked at: while a CUDA graph is recorded, or under a transform of torch.func."""
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    try:
        rms, least = _looked_at(tensor)
    except RuntimeError:
        return None
    if not math.isfinite(rms) or rms <= 0.0:
        return None
    return Scale(round(math.log2(rms / SEEDED_RMS)), least >= 0.0)


def _looked_at(tensor: torch.Tensor) -> tuple[float, float]:
    """Root mean square and least value; zeros where there is nothing, or a mask."""
    with torch.no_grad():
        values = _sample(tensor.detach()).reshape(-1)
        if values.is_complex():
            values = torch.view_as_real(values.resolve_conj()).reshape(-1)
        values = values.to(torch.float64)
        if not values.numel() or _is_mask(values):
            return 0.0, 0.0
        return values.square().mean().sqrt().item(), values.min().item()


def _is_mask(values: torch.Tensor) -> bool:
    """Whether they hide by what is added to scores: zeros and one negative number, often the lowest there is.
    Seeded values of its size would drown the scores, and whatever is wrong with them."""
    least = values.min()
    return bool(least < 0) and bool(((values == 0) | (values == least)).all())


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """At most SAMPLE of its elements, the first rows; a view, whatever its strides."""
    while tensor.numel() > SAMPLE:
        rows = SAMPLE * tensor.shape[0] // tensor.numel()
        tensor = tensor[:rows] if rows else tensor[0]
    return tensor


def written(scale: Scale | None) -> list[Any] | None:
    """As a part of a call's form."""
    return None if scale is None else [scale.exponent, scale.positive]


def read(node: Any) -> Scale:
    """What ``written`` gave; another process may have written it."""
    return UNSCALED if node is None else Scale(int(node[0]), bool(node[1]))


def _range(dtype: torch.dtype) -> tuple[int, int]:
    """Exponents with which values below 2 neither overflow nor vanish, in ``dtype`` and in float32."""
    kinds = [torch.finfo(torch.float32), torch.finfo(dtype)]
    lowest = max(math.ceil(math.log2(kind.tiny)) for kind in kinds)
    highest = min(math.floor(math.log2(kind.max)) - 1 for kind in kinds)
    return lowest, max(lowest, highest)
