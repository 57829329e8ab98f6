"""Forward and backward through the model's root and its repeated blocks.

A root's pre-hook publishes FORWARD (or EVAL), a block's pre-hook names the block ("layers.3 (Block)"),
its post-hook returns to the enclosing coordinate and leaves a tensor hook on the autograd node that made
the output: when the backward pass reaches that node, this block's backward is about to begin. Never module
backward hooks: those break in-place operations on the output. ``Tensor.register_hook`` makes two Python
objects per call; its last step, ``_register_hook_dict``, takes a dictionary that can be made once, so each
block owns an *anchor* tensor that carries it (1.3 µs saved per block). A forward that runs inside a backward
pass (activation checkpointing) keeps phase BACKWARD.

Hooks live in the module's own tables, so they are copied and pickled with it. They are bound methods: a deep
copy of the module shares them (``Hook.__deepcopy__``), and a pickle keeps a bound method as the pickle of its
object and the function's name. The object pickles as ``torch.nn.Identity()`` and every hook function is named
``__init__``: what is loaded, also where scoutd is not installed, is a method of Identity that accepts any
arguments and returns None.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.compiler import is_compiling

from scoutd.proto.shm import Phase
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.intercept import Undo

_graph_task: Final = torch._C._current_graph_task_id
_grad_enabled: Final = torch.is_grad_enabled
_Tensor: Final = torch.Tensor
NO_TASK: Final = -1
FORWARD: Final = int(Phase.FORWARD)
BACKWARD: Final = int(Phase.BACKWARD)
EVAL: Final = int(Phase.EVAL)
INHERITED: Final = (FORWARD, EVAL, BACKWARD)
"""Phases that a block takes over from what encloses it."""

MAX_BLOCKS: Final = 512
MAX_OUTPUTS: Final = 4
"""Elements of a block's output tuple that are looked at for a differentiable tensor."""

_WRAPPERS: Final = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class Hook:
    """What the hooks of one module share. ``anchor`` is None where backward is not announced."""

    __slots__ = ("anchor", "coordinates", "guard", "operation", "part")

    def __init__(self, coordinates: Coordinates, guard: Guard, part: Part, operation: bytes) -> None:
        self.coordinates = coordinates
        self.guard = guard
        self.part = part
        self.operation = operation
        self.anchor: torch.Tensor | None = None

    def __deepcopy__(self, memo: Any) -> Hook:
        return self

    def __reduce__(self) -> Any:
        return torch.nn.Identity, ()

    def bind(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function as a hook that copies and pickles harmlessly."""
        function.__name__ = "__init__"
        return types.MethodType(function, self)


def enter_root(hook: Hook, module: torch.nn.Module, args: Any) -> None:
    if is_compiling() or not hook.part.on:
        return
    try:
        coordinates = hook.coordinates
        writer = coordinates.writer
        if writer.stack:
            coordinates.drop_repeated(writer, hook.operation)
        coordinates.enter_hooked(writer, _outermost_phase(module), hook.operation)
    except FAULT as error:
        hook.guard.failed(hook.part, error)


def enter_block(hook: Hook, module: torch.nn.Module, args: Any) -> None:
    if is_compiling() or not hook.part.on:
        return
    try:
        coordinates = hook.coordinates
        try:
            writer = coordinates.local.writer
        except AttributeError:
            writer = coordinates.writer
        stack = writer.stack
        if stack:
            phase = stack[-1][0]
            if phase not in INHERITED:
                phase = FORWARD
        else:
            phase = _outermost_phase(module)
        operation = hook.operation
        stack.append((phase, operation, 0, True))
        coordinates.publish(writer, phase, operation, 0)
    except FAULT as error:
        hook.guard.failed(hook.part, error)


def leave(hook: Hook, module: torch.nn.Module, args: Any, output: Any) -> None:
    """The post-hook of roots and blocks."""
    if is_compiling() or not hook.part.on:
        return
    try:
        if hook.anchor is not None:
            node = output.grad_fn if type(output) is _Tensor else _node_of(output)
            if node is not None:
                node._register_hook_dict(hook.anchor)
        coordinates = hook.coordinates
        try:
            writer = coordinates.local.writer
        except AttributeError:  # hooked in the middle of this very call
            return
        stack = writer.stack
        if len(stack) > 1 and stack[-1][1] is hook.operation:  # the common case, without a detour
            stack.pop()
            phase, enclosing, waiting, _ = stack[-1]
            coordinates.publish(writer, phase, enclosing, waiting)
        else:
            coordinates.leave_hooked(writer, hook.operation)
    except FAULT as error:
        hook.guard.failed(hook.part, error)


def enter_backward(hook: Hook, grad: Any) -> None:
    if is_compiling() or not hook.part.on:
        return
    try:
        hook.coordinates.replace(BACKWARD, hook.operation)
    except FAULT as error:
        hook.guard.failed(hook.part, error)


def _outermost_phase(module: torch.nn.Module) -> int:
    """The phase of a forward that no other encloses. Inside a backward pass it recomputes activations."""
    if _graph_task() != NO_TASK:
        return BACKWARD
    return FORWARD if module.training and _grad_enabled() else EVAL


def _anchor(hook: Hook) -> torch.Tensor:
    """A tensor that carries the dictionary of backward hooks; nothing is ever computed from it."""
    anchor = torch.empty(0, requires_grad=True)
    anchor._backward_hooks = {0: hook.bind(enter_backward)}
    return anchor


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


def user_class(module: torch.nn.Module) -> type:
    """The user's class: ``fully_shard`` puts a subclass FSDPBlock in front of Block."""
    kind = type(module)
    if kind.__name__.startswith("FSDP") and hasattr(module, "unshard") and len(kind.__bases__) > 1:
        kind = kind.__bases__[1]
    return kind


def class_name(module: torch.nn.Module) -> str:
    return user_class(module).__name__


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
    watched = dict(repeated_blocks(inner)[:MAX_BLOCKS])
    for name, child in inner.named_children():
        if not isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList)):
            watched.setdefault(name, child)
    seen: set[int] = set()
    for path, module in watched.items():
        if id(module) not in seen:
            seen.add(id(module))
            yield prefix + path, module


def repeated_blocks(inner: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The largest repeated class inside containers (by parameters), in order; empty where nothing repeats."""
    families: dict[type, list[tuple[str, torch.nn.Module]]] = {}
    for path, container in inner.named_modules():
        if isinstance(container, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)):
            for name, child in container.named_children():
                families.setdefault(type(child), []).append((f"{path}.{name}".lstrip("."), child))
    repeated = [members for members in families.values() if len(members) > 1]
    return max(repeated, key=_weight, default=[])


def _weight(members: list[tuple[str, torch.nn.Module]]) -> int:
    return sum(parameter.numel() for _, module in members for parameter in module.parameters())


def watch_root(root: torch.nn.Module, coordinates: Coordinates, guard: Guard, undo: Undo) -> int:
    """The root and its blocks are hooked; the number of blocks is returned."""
    part = guard.part("modules")
    blocks = list(blocks_of(root))
    outer = {id(module) for _, module in blocks if _contains(module, blocks)}
    hook = Hook(coordinates, guard, part, encode(class_name(root)))
    hook.anchor = None if blocks else _anchor(hook)
    undo.add(root.register_forward_pre_hook(hook.bind(enter_root)).remove)
    undo.add(root.register_forward_hook(hook.bind(leave)).remove)
    for path, module in blocks:
        hook = Hook(coordinates, guard, part, encode(block_name(clean_path(path), module)))
        # An outer module often returns what its last block returned: both would hook the same node.
        hook.anchor = None if id(module) in outer else _anchor(hook)
        undo.add(module.register_forward_pre_hook(hook.bind(enter_block)).remove)
        undo.add(module.register_forward_hook(hook.bind(leave)).remove)
    return len(blocks)


def block_name(path: str, module: torch.nn.Module) -> str:
    """ "layers.3 (Block)"; the class alone for the module inside a wrapper."""
    name = class_name(module)
    return f"{path} ({name})" if path and path not in ("module", "_orig_mod") else name


def _contains(module: torch.nn.Module, blocks: list[tuple[str, torch.nn.Module]]) -> bool:
    inner = {id(part) for part in module.modules() if part is not module}
    return any(id(block) in inner for _, block in blocks)
