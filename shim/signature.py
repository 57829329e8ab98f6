"""H_64, the signature of a tensor or of a nest of tensors (design §6): 64 bits that replicas compare in place
of the tensors themselves.

A signature covers element type, shape and raw bytes, and every byte's position. What it does not cover is
where the bytes lie: strides, device number, owner. -0.0 differs from 0.0, and a NaN from a NaN with another
payload: peers that computed the same have the same bits.

A nest is written out as one line of bytes, in which each tensor is its element type, its shape and a 64-bit
digest of its bytes; the signature is XXH3-64 of that line. How the bytes are digested is the *scheme*: XXH3
where they are in host memory, read where they lie, and a sum of mixed lanes (``signature_lanes``) on an
accelerator, so that eight bytes a tensor leave the device, and all of a nest's at once. The same tensor has
different signatures under different schemes; evidence carries the scheme and is not compared across.

xxhash is imported at first use. Where it is missing, ``unavailable`` says so, and nothing can be signed.

Reference: SCOUT §2 ("a w = 64 bit position-sensitive signature of dtype, shape and bytes").
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

from scoutd.shim.signature_bytes import memory, pieces, plain
from scoutd.shim.signature_finite import all_finite
from scoutd.shim.signature_lanes import lanes_digest
from scoutd.shim.signature_nest import walk

SCHEME_XXH3: Final = 1
SCHEME_LANES: Final = 2

_U64: Final = 1 << 64


def signature(value: Any) -> int:
    """The signature of ``value``: a tensor, or a nest of tensors, Python scalars and None.

    On an accelerator this waits for the current stream once.

    Raises:
        ValueError: something in it has no bytes to read (a sparse, quantized or meta tensor) or no canonical
            form (an object of an unknown class). The text names it.
        RuntimeError: xxhash is missing; see ``unavailable``.
    """
    line = bytearray()
    pending: list[tuple[int, torch.Tensor]] = []
    with _untouched(), torch.no_grad():
        for part in walk(value):
            if isinstance(part, bytes):
                line += part
            elif part.device.type == "cpu":
                line += _host_digest(part).to_bytes(8, "little")
            else:
                pending.append((len(line), lanes_digest(part)))
                line += bytes(8)
        _collect(line, pending)
    return int(_xxh3().xxh3_64_intdigest(bytes(line)))


def scheme_of(value: Any) -> int:
    """SCHEME_XXH3 if all tensors of ``value`` are in host memory, SCHEME_LANES if all are on accelerators;
    both bits if there are some of each. Without any tensor SCHEME_XXH3."""
    schemes = {SCHEME_XXH3 if tensor.device.type == "cpu" else SCHEME_LANES for tensor in _tensors(value)}
    return sum(schemes) or SCHEME_XXH3


def nonfinite(value: Any) -> bool:
    """Whether a tensor of ``value`` holds a NaN or an infinity; Python's own numbers are not looked at.

    Raises:
        ValueError: as ``signature``.
    """
    with _untouched(), torch.no_grad():
        finite = [all_finite(tensor) for tensor in _tensors(value)]
        devices = {flag.device for flag in finite}
        return not all(bool(torch.stack([f for f in finite if f.device == d]).all()) for d in devices)


def unavailable() -> str:
    """Why nothing can be signed in this process; empty if it can."""
    try:
        _xxh3()
    except RuntimeError as error:
        return str(error)
    return ""


def _tensors(value: Any) -> list[torch.Tensor]:
    with _untouched():
        return [part for part in walk(value) if isinstance(part, torch.Tensor)]


def _untouched() -> AbstractContextManager[None]:
    """Within it the ``__torch_function__`` of the user's own tensor classes is not called."""
    return torch._C.DisableTorchFunctionSubclass()


@functools.cache
def _xxh3() -> Any:
    try:
        found: Any = importlib.import_module("xxhash")
    except ImportError as error:
        raise RuntimeError("xxhash is not installed (pip install xxhash)") from error
    if not hasattr(found, "xxh3_64_intdigest"):
        raise RuntimeError("xxhash is too old: XXH3 came with 2.0")
    return found


def _host_digest(tensor: torch.Tensor) -> int:
    """XXH3-64 of the tensor's bytes in logical order; a contiguous tensor is not copied."""
    xxhash = _xxh3()
    digest: Callable[[Any], int] = xxhash.xxh3_64_intdigest
    if plain(tensor):
        return digest(memory(tensor))
    stream = xxhash.xxh3_64()
    for piece in pieces(tensor):
        stream.update(memory(piece))
    return int(stream.intdigest())


def _collect(line: bytearray, pending: list[tuple[int, torch.Tensor]]) -> None:
    """The device's digests are in their places in ``line``; one wait per device."""
    for device in {digest.device for _, digest in pending}:
        mine = [(at, digest) for at, digest in pending if digest.device == device]
        for (at, _), value in zip(mine, torch.stack([d for _, d in mine]).tolist(), strict=True):
            line[at : at + 8] = (value % _U64).to_bytes(8, "little")
