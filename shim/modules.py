"""Forward and backward through the model's root and its repeated blocks.

A root's pre-hook publishes FORWARD (or EVAL), a block's pre-hook names the block ("layers.3 (Block)"),
its post-hook returns to the enclosing coordinate and leaves a hook on the autograd node that made the
output: when the backward pass reaches that node, this block's backward is about to begin. Hooks on nodes,
never module backward hooks: those break in-place operations on the output. A forward that runs inside a
backward pass (activation checkpointing) keeps phase BACKWARD.

Hooks are objects, not closures, because they live in the module's own tables: a deep copy of the module
shares them, and a pickled module stores in their place a method of ``torch.nn.Identity`` that accepts any
arguments and returns None, so that it loads where scoutd is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.compiler import is_compiling

from scoutd.proto.shm import Phase
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.intercept import Undo

_graph_task: Final = torch._C._current_graph_task_id
_grad_enabled: Final = torch.is_grad_enabled
NO_TASK: Final = -1
FORWARD: Final = int(Phase.FORWARD)
BACKWARD: Final = int(Phase.BACKWARD)
EVAL: Final = int(Phase.EVAL)

MAX_BLOCKS: Final = 512
MAX_OUTPUTS: Final = 4
"""Elements of a block's output tuple that are looked at for a differentiable tensor."""

_WRAPPERS: Final = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class Hook:
    """What all hooks share. Never compared, copied or pickled by content."""

    __slots__ = ("coordinates", "guard", "operation", "part")

    def __init__(self, coordinates: Coordinates, guard: Guard, part: Part, operation: bytes) -> None:
        self.coordinates = coordinates
        self.guard = guard
        self.part = part
        self.operation = operation

    def __deepcopy__(self, memo: Any) -> Hook:
        return self

    def __copy__(self) -> Hook:
        return self

    def __reduce__(self) -> Any:
        return getattr, (torch.nn.Identity(), "__init__")


class RootEnter(Hook):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: Any) -> None:
        if is_compiling() or not self.part.on:
            return
        try:
            coordinates = self.coordinates
            writer = coordinates.writer
            if writer.stack:
                coordinates.drop_repeated(writer, self.operation)
            if _graph_task() != NO_TASK:
                phase = BACKWARD
            else:
                phase = FORWARD if module.training and _grad_enabled() else EVAL
            coordinates.enter_hooked(writer, phase, self.operation)
        except FAULT as error:
            self.guard.failed(self.part, error)


class BlockEnter(Hook):
    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: Any) -> None:
        if is_compiling() or not self.part.on:
            return
        try:
            coordinates = self.coordinates
            writer = getattr(coordinates.local, "writer", None) or coordinates.writer
            if _graph_task() != NO_TASK:
                phase = BACKWARD
            elif writer.stack:
                phase = EVAL if writer.stack[-1][0] == EVAL else FORWARD
            else:
                phase = FORWARD if module.training else EVAL
            coordinates.enter_hooked(writer, phase, self.operation)
        except FAULT as error:
            self.guard.failed(self.part, error)


class Leave(Hook):
    """The post-hook of roots and blocks. Only innermost blocks announce their backward: an outer module
    often returns what its last block returned, and both would hook the same node."""

    __slots__ = ("backward",)

    def __init__(
        self, coordinates: Coordinates, guard: Guard, part: Part, operation: bytes, innermost: bool
    ) -> None:
        super().__init__(coordinates, guard, part, operation)
        self.backward = Backward(coordinates, guard, part, operation) if innermost else None

    def __call__(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if is_compiling() or not self.part.on:
            return
        try:
            if self.backward is not None and _grad_enabled():
                node = output.grad_fn if type(output) is torch.Tensor else _node_of(output)
                if node is not None:
                    node.register_prehook(self.backward)
            coordinates = self.coordinates
            writer = getattr(coordinates.local, "writer", None) or coordinates.writer
            coordinates.leave_hooked(writer, self.operation)
        except FAULT as error:
            self.guard.failed(self.part, error)


class Backward(Hook):
    __slots__ = ()

    def __call__(self, grads: Any) -> None:
        if is_compiling() or not self.part.on:
            return
        try:
            self.coordinates.replace(BACKWARD, self.operation)
        except FAULT as error:
            self.guard.failed(self.part, error)


def _node_of(output: Any) -> Any:
    """The autograd node that made the output, or the first differentiable part of it."""
    if isinstance(output, torch.Tensor):
        return output.grad_fn
    if isinstance(output, dict):
        output = tuple(value for value, _ in zip(output.values(), range(MAX_OUTPUTS), strict=False))
    if isinstance(output, (tuple, list)):
        for part in output[:MAX_OUTPUTS]:
            if isinstance(part, torch.Tensor) and part.grad_fn is not None:
                return part.grad_fn
    return None


def class_name(module: torch.nn.Module) -> str:
    """The user's class: ``fully_shard`` puts a subclass FSDPBlock in front of Block."""
    kind = type(module)
    if kind.__name__.startswith("FSDP") and hasattr(module, "unshard") and len(kind.__bases__) > 1:
        kind = kind.__bases__[1]
    return kind.__name__


def clean_path(path: str) -> str:
    """The module's path without what wrappers add to it."""
    for wrapper in _WRAPPERS:
        path = path.replace(wrapper, "")
    return path


def unwrapped(module: torch.nn.Module) -> tuple[str, torch.nn.Module]:
    """The user's own root below wrappers that have a single child, and the path to it ("module.")."""
    prefix = ""
    for name in ("module", "_orig_mod", "module", "_orig_mod"):
        children = dict(module.named_children())
        if list(children) == [name] and name in children:
            prefix += name + "."
            module = children[name]
    return prefix, module


def blocks_of(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules to watch below a root: the largest repeated class inside containers (by parameters),
    and the root's own children; containers that are never called are left out."""
    prefix, inner = unwrapped(root)
    if inner is not root:
        yield prefix.rstrip("."), inner
    families: dict[type, list[tuple[str, torch.nn.Module]]] = {}
    for path, container in inner.named_modules():
        if isinstance(container, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
            for name, child in container.named_children():
                families.setdefault(type(child), []).append((f"{path}.{name}".lstrip("."), child))
    repeated = [members for members in families.values() if len(members) > 1]
    largest = max(repeated, key=_weight, default=[])
    watched = dict(largest[:MAX_BLOCKS])
    for name, child in inner.named_children():
        if not isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList)):
            watched.setdefault(name, child)
    seen: set[int] = set()
    for path, module in watched.items():
        if id(module) not in seen:
            seen.add(id(module))
            yield prefix + path, module


def _weight(members: list[tuple[str, torch.nn.Module]]) -> int:
    return sum(parameter.numel() for _, module in members for parameter in module.parameters())


def watch_root(root: torch.nn.Module, coordinates: Coordinates, guard: Guard, undo: Undo) -> int:
    """The root and its blocks are hooked; the number of blocks is returned."""
    part = guard.part("modules")
    blocks = list(blocks_of(root))
    outer = {id(module) for _, module in blocks if _contains(module, blocks)}
    operation = encode(class_name(root))
    undo.add(root.register_forward_pre_hook(RootEnter(coordinates, guard, part, operation)).remove)
    leave = Leave(coordinates, guard, part, operation, innermost=not blocks)
    undo.add(root.register_forward_hook(leave).remove)
    for path, module in blocks:
        operation = encode(block_name(clean_path(path), module))
        undo.add(module.register_forward_pre_hook(BlockEnter(coordinates, guard, part, operation)).remove)
        leave = Leave(coordinates, guard, part, operation, innermost=id(module) not in outer)
        undo.add(module.register_forward_hook(leave).remove)
    return len(blocks)


def block_name(path: str, module: torch.nn.Module) -> str:
    """"layers.3 (Block)"; the class alone for the module inside a wrapper."""
    name = class_name(module)
    return f"{path} ({name})" if path and path not in ("module", "_orig_mod") else name


def _contains(module: torch.nn.Module, blocks: list[tuple[str, torch.nn.Module]]) -> bool:
    inner = {id(part) for part in module.modules() if part is not module}
    return any(id(block) in inner for _, block in blocks)
