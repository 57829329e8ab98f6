"""Inputs that all peers have without telling each other: made from a counter.

The seed is a hash of recipe, key and place, so that every replay, every tensor and both runs are told apart
or are equal as needed. Values are uniform in [-2, 2), times a power of two (``scale``): multiples of 2^-22,
exact in float32 whatever the processor fuses, where a normal distribution goes through a logarithm that
differs between processors. They are made on the host and copied, because every host has the same generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import torch

from scoutd.shim.replay.scale import UNSCALED, Scale

LOW: Final = -2.0
HIGH: Final = 2.0


def seed_of(recipe: int, key: int, place: str) -> int:
    """63 bits: a seed that every torch generator takes."""
    text = f"{recipe}|{key}|{place}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


class Source:
    """The seeded tensors of one replay. ``place`` names each; equal places have equal values."""

    def __init__(self, recipe: int, key: int) -> None:
        self._recipe: Final = recipe
        self._key: Final = key

    def seed(self, place: str) -> int:
        return seed_of(self._recipe, self._key, place)

    def floats(
        self,
        place: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        scale: Scale = UNSCALED,
    ) -> torch.Tensor:
        """Uniform in [-2, 2) at this scale; complex numbers in both parts."""
        generator = torch.Generator("cpu")
        generator.manual_seed(self.seed(place))
        size = (*shape, 2) if dtype.is_complex else tuple(shape)
        raw = torch.empty(size, dtype=torch.float32, device="cpu").uniform_(LOW, HIGH, generator=generator)
        if scale is not UNSCALED:
            raw = scale.fit(raw, dtype)
        if dtype.is_complex:
            raw = torch.view_as_complex(raw)
        return raw.to(device=device, dtype=dtype)

    def indices(
        self, place: str, shape: Sequence[int], below: int, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Whole numbers in [0, ``below``)."""
        generator = torch.Generator("cpu")
        generator.manual_seed(self.seed(place))
        raw = torch.empty(tuple(shape), dtype=torch.int64, device="cpu")
        return raw.random_(0, below, generator=generator).to(device=device, dtype=dtype)
