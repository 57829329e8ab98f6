"""Looks at one real call of a module, and is gone again.

The hook is a pre-hook that sees the arguments, so it runs before anything changes them; it is taken out in
the first call in training mode with gradients (with reentrant checkpointing that is the recomputation). It is
copied and pickled harmlessly like every hook of the shim (see ``shim/modules.py``).
"""

from __future__ import annotations

import types
from typing import Any, Final

import torch
from torch.compiler import is_compiling

from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.replay.call import learn
from scoutd.shim.replay.recipes import Recipe
from scoutd.shim.replay.refusal import Refusal


class Ear:
    """The hook of one recipe."""

    def __init__(self, recipe: Recipe, guard: Guard, part: Part) -> None:
        self.recipe: Final = recipe
        self._guard: Final = guard
        self._part: Final = part
        self._handle: Any = None

    def __deepcopy__(self, memo: Any) -> Ear:
        return self

    def __reduce__(self) -> Any:
        return torch.nn.Identity, ()

    def listen(self) -> None:
        """The next call in training is learnt from."""
        module = self.recipe.module
        if module is not None:
            self._handle = module.register_forward_pre_hook(types.MethodType(_hear, self), with_kwargs=True)

    def stop(self) -> None:
        """The hook is out."""
        if self._handle is not None:
            self._handle.remove()

    def hear(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """The recipe knows the call. Nothing happens outside of training, or in a copy of the module."""
        if not module.training or not torch.is_grad_enabled() or module is not self.recipe.module:
            return
        self.stop()
        if self.recipe.learnt is not None:  # from the group's first rank
            return
        try:
            self.recipe.learn(learn(module, args, kwargs, self.recipe.indices_below))
        except Refusal as refusal:
            self.recipe.disable(str(refusal))

    def failed(self, error: BaseException) -> None:
        self._guard.failed(self._part, error)

    @property
    def on(self) -> bool:
        return self._part.on


def _hear(ear: Ear, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    if is_compiling() or not ear.on:
        return
    try:
        ear.hear(module, args, kwargs)
    except FAULT as error:
        ear.failed(error)


_hear.__name__ = "__init__"  # what a pickle of the bound method looks up on Identity
