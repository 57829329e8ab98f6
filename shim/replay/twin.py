"""The private twin of a block: same class, same attributes, same parameters, and no way back to the original.

A twin is built by structure: an object of the user's class (not the one that ``fully_shard`` put in front),
with empty hook tables, copies of parameters, buffers and attributes (``copies``), and twins of its children.
Compiled and checkpointing wrappers around the block are looked through. What cannot be copied without leading
back to the live module is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from scoutd.shim.modules import user_class
from scoutd.shim.replay.copies import Memo, copied
from scoutd.shim.replay.refusal import Refusal

_WRAPPERS: Final = ("_orig_mod", "_checkpoint_wrapped_module")
_TABLES: Final = frozenset(("_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"))
_BLANK: Final = frozenset(vars(torch.nn.Module())) - _TABLES
"""What ``torch.nn.Module`` itself keeps besides: hook tables and flags, which a twin has anew."""

_DROPPED: Final = frozenset(("_compiled_call_impl",))
_COMPOSABLE: Final = "__composable_api_state_key"
"""Under such names composable wrappers (fully_shard, checkpoint) keep what they know of a module."""

_COMMUNICATING: Final = ("SyncBatchNorm", "FullyShardedDataParallel", "DistributedDataParallel")

Fill = Callable[[str, torch.nn.Parameter], torch.Tensor]
"""The values of the parameter of this name, as a plain tensor that the twin may own."""


def inner(module: torch.nn.Module) -> torch.nn.Module:
    """The user's block below what compiles or checkpoints it."""
    for name in _WRAPPERS * 2:
        child = dict(module.named_children()).get(name)
        if child is not None:
            module = child
    return module


def twin_of(module: torch.nn.Module, fill: Fill) -> torch.nn.Module:
    """A twin in the original's mode, whose parameters are what ``fill`` gives for them.

    Raises:
        Refusal: there can be none.
    """
    memo = Memo(_outside)
    for path, part in module.named_modules():
        _check(part)
        for name, parameter in part._parameters.items():
            if parameter is not None and id(parameter) not in memo:
                where = f"{path}.{name}".lstrip(".")
                memo.keep(parameter, _parameter(fill(where, parameter), parameter, memo))
        memo.keep(part, _blank(part))
    for part in module.modules():
        _dress(part, memo[id(part)], memo)
    made: torch.nn.Module = memo[id(module)]
    return made


def _outside(module: torch.nn.Module, memo: Memo) -> torch.nn.Module:
    raise Refusal(f"it refers to a {type(module).__qualname__} outside of it")


def _check(module: torch.nn.Module) -> None:
    kind = user_class(module)
    if kind.__name__ in _COMMUNICATING:
        raise Refusal(f"{kind.__name__} communicates")
    if isinstance(module, torch.jit.ScriptModule):
        raise Refusal("it is a TorchScript module")
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        raise Refusal("its parameters are not initialised")
    if "forward" in vars(module):
        raise Refusal(f"the forward of a {kind.__name__} was replaced on the object")


def _parameter(values: torch.Tensor, original: torch.nn.Parameter, memo: Memo) -> torch.nn.Parameter:
    if type(values) not in (torch.Tensor, torch.nn.Parameter):
        raise Refusal(f"a parameter is a {type(values).__qualname__}")
    return torch.nn.Parameter(values.detach(), requires_grad=original.requires_grad)


def _blank(module: torch.nn.Module) -> torch.nn.Module:
    """An object of the user's class with the tables of a new module."""
    kind: Any = user_class(module)
    made: torch.nn.Module = kind.__new__(kind)
    vars(made).update(vars(torch.nn.Module()))
    return made


def _dress(module: torch.nn.Module, made: torch.nn.Module, memo: Memo) -> None:
    """The blank has everything that its original has."""
    source: Mapping[Any, Any] = vars(module)
    target = vars(made)
    target["training"] = module.training
    target["_non_persistent_buffers_set"] = set(source["_non_persistent_buffers_set"])
    for table in ("_parameters", "_buffers", "_modules"):
        target[table] = type(source[table])(
            (name, None if value is None else copied(value, memo)) for name, value in source[table].items()
        )
    for name, value in source.items():
        if str(name).startswith(_COMPOSABLE) or name in _BLANK or name in _TABLES or name in _DROPPED:
            continue
        target[name] = copied(value, memo)
