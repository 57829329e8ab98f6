"""The calls that a group's first rank has learnt or captured, as bytes for its peers.

A header in JSON, with a digest, and the content of the fixed tensors behind it; no pickle, since what comes
from another process is only data. The calls of all recipes are in it, so that peers whose first batches
differ in shape replay the same one. What does not look as it should is refused as a whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from scoutd.shim.replay.call import MAX_FIXED_BYTES, MAX_TEXT, Call
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.signature import signature
from scoutd.shim.signature_bytes import memory

_HEAD: Final = struct.Struct("<Q8s")
"""Length and digest of the header."""

_ALIGN: Final = 16


@dataclass
class Templates:
    """``calls`` and ``refused`` (with the reason) by the recipe's index."""

    calls: dict[int, Call] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)


def packed(recipes: Iterable[Recipe]) -> bytes:
    """The recipes' calls, and why others will never have one."""
    found = Templates()
    for recipe in recipes:
        if recipe.learnt is None:
            found.refused[recipe.index] = recipe.reason
        else:
            found.calls[recipe.index] = recipe.learnt
    return pack(found)


def pack(found: Templates) -> bytes:
    """As ``unpacked`` reads it."""
    fixed: dict[str, torch.Tensor] = {}
    for call in found.calls.values():
        fixed.update(call.fixed)
    header = json.dumps(
        {
            "calls": [[index, call.form] for index, call in found.calls.items()],
            "refused": list(found.refused.items()),
            "fixed": [[key, str(each.dtype)[6:], list(each.shape)] for key, each in fixed.items()],
        }
    ).encode()
    parts = [_HEAD.pack(len(header), _digest(header)), header, bytes(-len(header) % _ALIGN)]
    for each in fixed.values():
        content = bytes(memory(each))
        parts += [content, bytes(-len(content) % _ALIGN)]
    return b"".join(parts)


def unpacked(content: bytes, content_is_evidence: bool = False) -> Templates:
    """What ``packed`` was given.

    Args:
        content_is_evidence: tensors are taken as they have come; their bytes are signed when they are
            replayed, and tell who was given others. Otherwise a changed one is refused.

    Raises:
        ValueError: it is not that.
    """
    try:
        return _unpacked(content, content_is_evidence)
    except (KeyError, TypeError, AttributeError, struct.error, RuntimeError) as error:
        raise ValueError(f"a template that cannot be read: {error}") from error


def _unpacked(content: bytes, content_is_evidence: bool) -> Templates:
    length, digest = _HEAD.unpack_from(content)
    at = _HEAD.size + length
    if _digest(content[_HEAD.size : at]) != digest:
        raise ValueError("a template whose header was changed on its way")
    header = json.loads(content[_HEAD.size : at])
    at += -length % _ALIGN
    fixed: dict[str, torch.Tensor] = {}
    for key, name, shape in header["fixed"]:
        dtype = getattr(torch, name)
        size = math.prod(shape) * dtype.itemsize
        if not isinstance(dtype, torch.dtype) or not 0 <= size <= MAX_FIXED_BYTES or at + size > len(content):
            raise ValueError("a template of the wrong size")
        fixed[key] = _tensor(content[at : at + size], dtype, shape)
        if not content_is_evidence and f"{signature(fixed[key]):016x}" != key:
            raise ValueError("a template that was changed on its way")
        at += size + -size % _ALIGN
    return Templates(_calls(header["calls"], fixed), _reasons(header["refused"]))


def _digest(header: bytes) -> bytes:
    return hashlib.blake2b(header, digest_size=8).digest()


def _calls(listed: Iterable[tuple[Any, Any]], fixed: Mapping[str, torch.Tensor]) -> dict[int, Call]:
    found: dict[int, Call] = {}
    for index, form in listed:
        call = Call(str(form)[:MAX_TEXT])
        found[int(index)] = Call(call.form, {key: fixed[key] for key in call.needs})
    return found


def _reasons(listed: Iterable[tuple[Any, Any]]) -> dict[int, str]:
    return {int(index): str(reason)[:192] for index, reason in listed}


def _tensor(content: bytes, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    if not content:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
