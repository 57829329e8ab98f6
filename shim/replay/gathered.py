"""Parameters of a sharded block, copied while they are whole.

``fully_shard`` puts its gathering in front of all other pre-hooks of the modules that it shards, so a
pre-hook of ours runs right after it, when the block's parameters are plain tensors. It is registered for one
forward, only for a block that is due in this step, and takes itself out. Each hook copies what its module's
gathering has gathered: everything below it down to the next sharded module, which has a hook of its own.
"""

from __future__ import annotations

import time
import types
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.compiler import is_compiling

from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.replay.copies import MAX_TENSOR_BYTES
from scoutd.shim.replay.peers import mesh_of
from scoutd.shim.replay.twin import inner

PLAIN: Final = (torch.Tensor, torch.nn.Parameter)


def is_sharded(module: torch.nn.Module) -> bool:
    """Whether some parameter of the module is not whole between two steps."""
    return any(hasattr(parameter, "to_local") for parameter in module.parameters())


class Gathering:
    """The copies of one block. ``values`` is by the parameter's path; ``cost_ns`` is what copying took."""

    def __init__(self, block: torch.nn.Module, guard: Guard, part: Part) -> None:
        self.values: Final[dict[str, torch.Tensor]] = {}
        self.cost_ns = 0
        self._guard: Final = guard
        self._part: Final = part
        self._bytes = 0
        self._handles: Final[dict[int, Any]] = {}
        self._territories: Final[dict[int, list[tuple[str, torch.nn.Module]]]] = {}
        root = inner(block)
        tops = [(path, module) for path, module in root.named_modules() if not path or mesh_of(module)]
        for path, module in tops:
            self._territories[id(module)] = list(_territory(path, module, {id(each) for _, each in tops}))
            hook = types.MethodType(_copy, self)
            self._handles[id(module)] = module.register_forward_pre_hook(hook)

    def __deepcopy__(self, memo: Any) -> Gathering:
        return self

    def __reduce__(self) -> Any:
        return torch.nn.Identity, ()

    def take(self, module: torch.nn.Module) -> None:
        """The parameters of the module's territory are copied, those that are whole."""
        if not module.training or id(module) not in self._handles:
            return
        began = time.perf_counter_ns()
        self._handles.pop(id(module)).remove()
        for path, part in self._territories[id(module)]:
            for name, parameter in part._parameters.items():
                if parameter is not None and type(parameter) in PLAIN:
                    self._bytes += parameter.numel() * parameter.element_size()
                    if self._bytes <= MAX_TENSOR_BYTES:
                        self.values[f"{path}.{name}".lstrip(".")] = parameter.detach().clone()
        self.cost_ns += time.perf_counter_ns() - began

    def stop(self) -> None:
        """No hook is left."""
        while self._handles:
            self._handles.popitem()[1].remove()

    def failed(self, error: BaseException) -> None:
        self._guard.failed(self._part, error)

    @property
    def on(self) -> bool:
        return self._part.on


def _copy(gathering: Gathering, module: torch.nn.Module, args: Any) -> None:
    if is_compiling() or not gathering.on:
        return
    try:
        gathering.take(module)
    except FAULT as error:
        gathering.failed(error)


_copy.__name__ = "__init__"  # what a pickle of the bound method looks up on Identity


def _territory(path: str, module: torch.nn.Module, tops: set[int]) -> Iterator[tuple[str, torch.nn.Module]]:
    yield path, module
    for name, child in module.named_children():
        if id(child) not in tops:
            yield from _territory(f"{path}.{name}".lstrip("."), child, tops)
