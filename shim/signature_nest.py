"""A nest (tensors in lists, dictionaries, dataclasses …) as one sequence of parts: bytes that say what is
there, and the tensors in their places.

Two nests give equal parts if and only if they are the same in structure and in every scalar, whatever the
order in which a dictionary was filled; lists and tuples are the same. A DTensor is its local shard, another
wrapper its inner tensors by name. What cannot be told by its bytes is refused, never skipped: a signature
that leaves something out would call different things equal.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

DEEPEST: Final = 64
"""Levels; only a nest that contains itself has more."""


def walk(value: Any, depth: int = 0) -> Iterator[bytes | torch.Tensor]:
    """The parts of ``value`` in order; tensors are readable, dense and local.

    Raises:
        ValueError: something cannot be read or has no canonical form; the text names it.
    """
    if depth > DEEPEST:
        raise ValueError("a nest that is deeper than 64 levels")
    if isinstance(value, torch.Tensor):
        yield from _tensor(value, depth)
    elif isinstance(value, Mapping):
        yield from _named(b"M", sorted(value.items(), key=_key), depth)
    elif isinstance(value, (list, tuple)):
        yield b"L%d:" % len(value)
        for item in value:
            yield from walk(item, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(each.name, getattr(value, each.name)) for each in dataclasses.fields(value)]
        yield from _named(b"C" + _text(type(value).__qualname__), fields, depth)
    else:
        yield _scalar(value)


def _key(item: tuple[Any, Any]) -> tuple[str, str]:
    return type(item[0]).__name__, str(item[0])


def _named(tag: bytes, items: list[tuple[Any, Any]], depth: int) -> Iterator[bytes | torch.Tensor]:
    yield b"%s%d:" % (tag, len(items))
    for name, value in items:
        yield _scalar(name)
        yield from walk(value, depth + 1)


def _tensor(tensor: torch.Tensor, depth: int) -> Iterator[bytes | torch.Tensor]:
    local = _local(tensor)
    if is_traceable_wrapper_subclass(local):
        names, _ = local.__tensor_flatten__()
        inner = [(name, getattr(local, name)) for name in names]
        yield from _named(b"W" + _text(type(local).__qualname__), inner, depth)
        return
    reason = _refusal(local)
    if reason:
        raise ValueError(f"cannot sign {reason}")
    shape = ",".join(map(str, local.shape))
    yield b"T" + _text(f"{local.dtype}[{shape}]")
    yield local.as_subclass(torch.Tensor).detach()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's shard; the result of an asynchronous collective once it is there. The module is looked up,
    not imported: where it was never imported there is no such tensor."""
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is not None and isinstance(tensor, distributed.DTensor):
        tensor = tensor._local_tensor
    wait = getattr(type(tensor), "trigger_wait", None)
    return tensor if wait is None else wait(tensor)


def _refusal(tensor: torch.Tensor) -> str:
    """What there is in place of readable bytes; empty if there are bytes."""
    if is_lazy(tensor):
        return "an uninitialised tensor"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.device.type == "meta":
        return "a meta tensor"
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if fake is not None and isinstance(tensor, fake.FakeTensor):
        return "a fake tensor"
    return ""


def _scalar(value: Any) -> bytes:
    """One leaf that is not a tensor. Devices count by type: every rank has its own number."""
    if value is None:
        return b"N"
    if isinstance(value, Enum):
        return b"E" + _text(f"{type(value).__qualname__}.{value.name}")
    if isinstance(value, bool):
        return b"B%d" % value
    if isinstance(value, int):
        return b"I" + _text(str(value))
    if isinstance(value, float):
        return b"F" + struct.pack("<d", value)
    if isinstance(value, complex):
        return b"Z" + struct.pack("<dd", value.real, value.imag)
    if isinstance(value, str):
        return b"S" + _text(value)
    if isinstance(value, (bytes, bytearray)):
        return b"Y%d:%s" % (len(value), value)
    if isinstance(value, torch.device):
        return b"V" + _text(value.type)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return b"D" + _text(str(value))
    raise ValueError(f"cannot sign an object of class {type(value).__module__}.{type(value).__qualname__}")


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"%d:%s" % (len(encoded), encoded)
