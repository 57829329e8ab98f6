"""Which recipes a model has: its embedding, its repeated blocks, its output head.

Found by structure alone, so that all peers find the same in the same order: the rotation goes by place. The
blocks are the largest repeated class inside containers, as for progress (``modules.repeated_blocks``); where
nothing repeats, the root's children with parameters. The embedding is the first ``Embedding`` beside them,
else the first module with parameters before them; the head is the last module beside them that looks like
a ``Linear``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch

from scoutd.proto.replay import RecipeKind
from scoutd.shim.modules import MAX_BLOCKS, block_name, clean_path, repeated_blocks, unwrapped
from scoutd.shim.replay.recipes import Recipe

Found = tuple[RecipeKind, str, torch.nn.Module]


def find(root: torch.nn.Module) -> list[Found]:
    """(kind, clean path, module) of everything in this root that can be replayed, in order."""
    _, inner = unwrapped(root)
    blocks = _blocks(inner)
    inside = {id(part) for _, block in blocks for part in block.modules()}
    beside = [
        (path, module)
        for path, module in inner.named_modules()
        if path and id(module) not in inside and _is_leaf(module)
    ]
    embedding = _embedding(beside, blocks, inner)
    heads = [each for each in beside if _is_linear(each[1]) and each[1] is not (embedding or ("", None))[1]]
    found: list[Found] = []
    if embedding is not None:
        found.append((RecipeKind.EMBEDDING, *embedding))
    if heads:
        found.append((RecipeKind.HEAD, *heads[-1]))
    found += [(RecipeKind.BLOCK, path, block) for path, block in blocks[:MAX_BLOCKS]]
    return [(kind, clean_path(path), module) for kind, path, module in found]


def recipes_of(root: torch.nn.Module, first: int) -> Iterator[Recipe]:
    """The recipes of ``find``, numbered from ``first``."""
    for index, (kind, path, module) in enumerate(find(root), first):
        yield Recipe(
            index=index,
            kind=kind,
            name=block_name(path, module),
            path=path,
            subject=weakref.ref(module),
            indices_below=module.num_embeddings if isinstance(module, torch.nn.Embedding) else 0,
        )


def _blocks(inner: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    repeated = [each for each in repeated_blocks(inner) if any(True for _ in each[1].parameters())]
    if repeated:
        return repeated
    children = [each for each in inner.named_children() if any(True for _ in each[1].parameters())]
    return children or [("", inner)]


def _embedding(
    beside: list[tuple[str, torch.nn.Module]],
    blocks: list[tuple[str, torch.nn.Module]],
    inner: torch.nn.Module,
) -> tuple[str, torch.nn.Module] | None:
    for each in beside:
        if isinstance(each[1], torch.nn.Embedding):
            return each
    order = {id(module): place for place, module in enumerate(inner.modules())}
    first = min((order[id(block)] for _, block in blocks), default=0)
    before = [each for each in beside if order[id(each[1])] < first]
    return before[0] if before else None


def _is_leaf(module: torch.nn.Module) -> bool:
    """Has parameters of its own."""
    return any(parameter is not None for parameter in module._parameters.values())


def _is_linear(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return "Linear" in type(module).__name__ and isinstance(weight, torch.Tensor) and weight.dim() == 2
