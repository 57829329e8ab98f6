"""Finds the models of an unmodified script, without global module hooks.

A global hook would see every call, but dynamo warns about it and every module call would pay for it. So
the heap is looked at instead, at the moments when a model surely exists: when an optimizer is made, and
when a backward pass begins while no root has been seen running. Roots are modules with parameters that
are nobody's child. A DDP wrapper announces itself when it is made.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

from scoutd.shim.coordinates import Coordinates
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Function, Undo, swap
from scoutd.shim.modules import watch_root

MAX_ROOTS: Final = 8
MAX_SCANS: Final = 3
"""A scan costs tens of milliseconds in a large heap."""


def roots_in_heap() -> list[torch.nn.Module]:
    """Modules with parameters that no other module contains, largest first."""
    modules = [thing for thing in gc.get_objects() if _is_module(type(thing))]
    inner: set[int] = set()
    for module in modules:
        inner.update(id(child) for child in vars(module).get("_modules", {}).values() if child is not None)
    roots = [
        (sum(parameter.numel() for parameter in module.parameters()), module)
        for module in modules
        if id(module) not in inner and "_parameters" in vars(module)
    ]
    roots = [root for root in roots if root[0]]
    roots.sort(key=lambda root: -root[0])
    return [module for _, module in roots]


def _is_module(kind: type) -> bool:
    return issubclass(kind, torch.nn.Module)


class Discovery:
    """Which roots are watched. Holds them weakly."""

    def __init__(
        self,
        coordinates: Coordinates,
        guard: Guard,
        undo: Undo,
        watched: Callable[[torch.nn.Module], None],
    ) -> None:
        self._coordinates: Final = coordinates
        self._guard: Final = guard
        self._undo: Final = undo
        self._watched: Final = watched
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._scans = 0
        self.blocks = 0

    def watch(self, root: torch.nn.Module) -> None:
        """The root is watched, once; what it contains is watched with it."""
        if len(self._roots) >= MAX_ROOTS or root in self._roots:
            return
        self._roots.add(root)
        self.blocks += watch_root(root, self._coordinates, self._guard, self._undo)
        self._guard.run("topology", lambda: self._watched(root), None)

    def scan(self) -> None:
        """Roots in the heap are watched, unless some are already or enough scans were made."""
        if self._scans >= MAX_SCANS or len(self._roots):
            return
        self._scans += 1
        for root in roots_in_heap()[:MAX_ROOTS]:
            self.watch(root)

    def install(self) -> None:
        """Scans run when an optimizer is made; DDP wrappers are watched from their construction on."""
        part = self._guard.part("modules")
        swap(torch.optim.Optimizer.__init__, lambda inner: self._then_scan(inner, part), self._undo)
        swap(DistributedDataParallel.__init__, lambda inner: self._then_watch(inner, part), self._undo)

    def _then_scan(self, inner: Function, part: Any) -> Function:
        def init(*args: Any, **kwargs: Any) -> Any:
            result = inner(*args, **kwargs)
            if part.on:
                self._guard.run("modules", self.scan, None)
            return result

        return init

    def _then_watch(self, inner: Function, part: Any) -> Function:
        def init(*args: Any, **kwargs: Any) -> Any:
            result = inner(*args, **kwargs)
            if part.on and args:
                self._guard.run("modules", lambda: self.watch(args[0]), None)
            return result

        return init
