"""The calls that a group's first rank has learnt, as bytes for its peers.

A header in JSON and the content of the fixed tensors behind it; no pickle, since what comes from another
process is only data. The calls of all recipes are in it, so that peers whose first batches differ in shape
replay the same one. What does not look as it should is refused as a whole.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from scoutd.shim.replay.call import MAX_FIXED_BYTES, MAX_TEXT, Call
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.signature import signature
from scoutd.shim.signature_bytes import memory

_LENGTH: Final = struct.Struct("<Q")
_ALIGN: Final = 16


@dataclass
class Templates:
    """``calls`` and ``refused`` (with the reason) by the recipe's index."""

    calls: dict[int, Call] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)


def packed(recipes: Iterable[Recipe]) -> bytes:
    """The recipes' calls, and why others will never have one."""
    calls: list[Any] = []
    refused: list[Any] = []
    fixed: dict[str, torch.Tensor] = {}
    for recipe in recipes:
        if recipe.learnt is None:
            refused.append([recipe.index, recipe.reason])
            continue
        calls.append([recipe.index, recipe.learnt.form])
        fixed.update(recipe.learnt.fixed)
    tensors = [[key, str(each.dtype)[6:], list(each.shape)] for key, each in fixed.items()]
    header = json.dumps({"calls": calls, "refused": refused, "fixed": tensors}).encode()
    parts = [_LENGTH.pack(len(header)), header, bytes(-len(header) % _ALIGN)]
    for each in fixed.values():
        content = bytes(memory(each))
        parts += [content, bytes(-len(content) % _ALIGN)]
    return b"".join(parts)


def unpacked(content: bytes) -> Templates:
    """What ``packed`` was given.

    Raises:
        ValueError: it is not that.
    """
    try:
        return _unpacked(content)
    except (KeyError, TypeError, AttributeError, struct.error, RuntimeError) as error:
        raise ValueError(f"a template that cannot be read: {error}") from error


def _unpacked(content: bytes) -> Templates:
    (length,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + length
    header = json.loads(content[_LENGTH.size : at])
    at += -length % _ALIGN
    fixed: dict[str, torch.Tensor] = {}
    for key, name, shape in header["fixed"]:
        dtype = getattr(torch, name)
        size = math.prod(shape) * dtype.itemsize
        if not isinstance(dtype, torch.dtype) or not 0 <= size <= MAX_FIXED_BYTES or at + size > len(content):
            raise ValueError("a template of the wrong size")
        fixed[key] = _tensor(content[at : at + size], dtype, shape)
        if f"{signature(fixed[key]):016x}" != key:
            raise ValueError("a template that was changed on its way")
        at += size + -size % _ALIGN
    found = Templates()
    for index, form in header["calls"]:
        call = Call(str(form)[:MAX_TEXT])
        found.calls[int(index)] = Call(call.form, {key: fixed[key] for key in call.needs})
    found.refused = {int(index): str(reason)[:192] for index, reason in header["refused"]}
    return found


def _tensor(content: bytes, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    if not content:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
