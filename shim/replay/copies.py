"""Copies of what modules and optimizers are made of, so that nothing the copy does reaches the original.

Not ``copy.deepcopy``: FSDP modules refuse it, hooks and process groups would come along, and a function's
closure is shared. Values that cannot change are shared; containers are made anew; tensors are cloned, or
replaced by those that ``memo`` already has for them; objects of the user's own classes are copied by
``deepcopy`` with the same memo. Whatever would lead back to the original (a closure over a live module, a
weak reference to something else) or out of this process (a process group, a mesh) is refused.
"""

from __future__ import annotations

import copy
import enum
import functools
import re
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

import torch

from scoutd.shim.replay.refusal import Refusal

_SHARED: Final = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    enum.Enum,
    type,
    types.BuiltinFunctionType,
    types.ModuleType,
    re.Pattern,
    range,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)
MAX_TENSOR_BYTES: Final = 4 << 30


class Memo(dict[int, Any]):
    """Copies by the identity of their originals, which are kept alive meanwhile. ``module`` copies a module;
    ``bytes`` counts what was cloned."""

    def __init__(self, module: Callable[[torch.nn.Module, Memo], torch.nn.Module] | None = None) -> None:
        super().__init__()
        self.bytes = 0
        self._originals: list[Any] = []
        self._module = module

    def keep(self, original: Any, made: Any) -> Any:
        self[id(original)] = made
        self._originals.append(original)
        return made

    def module(self, original: torch.nn.Module) -> torch.nn.Module:
        if self._module is None:
            raise Refusal("it holds a module")
        return self._module(original, self)

    def tensor(self, original: torch.Tensor) -> torch.Tensor:
        """A clone of a plain tensor. Raises Refusal for others, and where it gets too much."""
        if type(original) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise Refusal(f"it holds a {type(original).__qualname__}")
        self.bytes += original.numel() * original.element_size()
        if self.bytes > MAX_TENSOR_BYTES:
            raise Refusal(f"a copy of it takes more than {MAX_TENSOR_BYTES >> 30} GiB")
        made: torch.Tensor = original.detach().clone()
        if isinstance(original, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=original.requires_grad)
        elif original.requires_grad:
            made.requires_grad_(True)
        return self.keep(original, made)  # type: ignore[no-any-return]


def copied(value: Any, memo: Memo) -> Any:
    """A copy that shares nothing which can change.

    Raises:
        Refusal: there is none.
    """
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, _SHARED):
        return value
    if isinstance(value, torch.Tensor):
        return memo.tensor(value)
    if isinstance(value, torch.nn.Module):
        return memo.module(value)
    for kind, make in _MAKERS:
        if isinstance(value, kind):
            return make(value, memo)
    return _object(value, memo)


def _mapping(value: Any, memo: Memo) -> Any:
    if type(value) not in (dict, OrderedDict, defaultdict):
        return _object(value, memo)
    made = defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()
    memo.keep(value, made)
    for key, each in value.items():
        made[copied(key, memo)] = copied(each, memo)
    return made


def _sequence(value: Any, memo: Memo) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(copied(each, memo) for each in value))
    if type(value) not in (list, tuple, set, frozenset, deque):
        return _object(value, memo)
    parts = [copied(each, memo) for each in value]
    made = deque(parts, value.maxlen) if isinstance(value, deque) else type(value)(parts)
    return memo.keep(value, made)


def _method(value: types.MethodType, memo: Memo) -> Any:
    return types.MethodType(_function(value.__func__, memo), copied(value.__self__, memo))


def _function(value: Any, memo: Memo) -> Any:
    """Shared, unless it closes over something that the original could be reached through."""
    for cell in getattr(value, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if isinstance(content, (torch.nn.Module, torch.Tensor, torch.optim.Optimizer)):
            raise Refusal(f"it holds a function that closes over a {type(content).__qualname__}")
        if isinstance(content, (types.FunctionType, types.MethodType)):
            _closed(content)
    return value


def _closed(function: Any) -> None:
    """Raises Refusal for a method of a live module inside a closure."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        raise Refusal(f"it holds a function that closes over a {type(owner).__qualname__}")


def _partial(value: Any, memo: Memo) -> Any:
    args = [copied(each, memo) for each in value.args]
    keywords = {key: copied(each, memo) for key, each in value.keywords.items()}
    return functools.partial(copied(value.func, memo), *args, **keywords)


def _reference(value: Any, memo: Memo) -> Any:
    target = value()
    if target is None:
        return value
    if id(target) in memo:
        return weakref.ref(memo[id(target)])
    raise Refusal(f"it holds a weak reference to a {type(target).__qualname__}")


def _generator(value: torch.Generator, memo: Memo) -> torch.Generator:
    made = torch.Generator(value.device)
    made.set_state(value.get_state())
    return memo.keep(value, made)  # type: ignore[no-any-return]


def _object(value: Any, memo: Memo) -> Any:
    """An object of the user's own class, attribute by attribute; what has rules of its own by
    ``deepcopy``."""
    kind: Any = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.startswith(("torch.distributed", "torch._C._distributed")):
        raise Refusal(f"it holds a {name}")
    ruled = kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__
    try:
        if ruled or hasattr(kind, "__deepcopy__") or not hasattr(value, "__dict__") or _slots(kind):
            return memo.keep(value, copy.deepcopy(value, memo))
        made = memo.keep(value, kind.__new__(kind))
    except (TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError) as error:
        raise Refusal(f"it holds a {name}, which cannot be copied: {error}") from error
    vars(made).update((key, copied(each, memo)) for key, each in vars(value).items())
    return made


def _slots(kind: type) -> bool:
    return any(vars(each).get("__slots__") for each in kind.__mro__)


_MAKERS: Final[tuple[tuple[Any, Callable[[Any, Memo], Any]], ...]] = (
    (dict, _mapping),
    ((list, tuple, set, frozenset, deque), _sequence),
    (types.MethodType, _method),
    (types.FunctionType, _function),
    (functools.partial, _partial),
    (weakref.ReferenceType, _reference),
    (torch.Generator, _generator),
)
