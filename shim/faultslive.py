"""Faults in the live model: a drill on a job that may be lost.

``install`` puts hooks on the modules that match, and on the optimizers' steps; they act in the step that the
fault names. What is broken here is training itself: weights before a forward, activations behind it,
gradients before they are reduced, optimizer state before a step, time before a forward. ``faults`` tells what
a fault is and when the kit is on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch

from scoutd.shim.faults import SWITCH, Fault, NotEnabled, Target, enabled


class Drill:
    """One fault in one model. ``strikes`` counts how often it was done; ``remove`` takes the hooks out."""

    def __init__(self, fault: Fault, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self.strikes = 0
        self.step = 0
        self._fault = fault
        self._undo: list[Callable[[], None]] = []
        self._keep(model.register_forward_pre_hook(self._count))
        for name, module in model.named_modules():
            if fnmatchcase(name, fault.module):
                self._hook(name, module)
        if fault.target is Target.OPTIMIZER and optimizer is not None:
            self._keep(optimizer.register_step_pre_hook(self._spoil_state))

    def remove(self) -> None:
        """Nothing is broken any more."""
        while self._undo:
            self._undo.pop()()

    def _keep(self, handle: Any) -> None:
        self._undo.append(handle.remove)

    def _count(self, module: torch.nn.Module, args: Any) -> None:
        self.step += module.training

    def _hook(self, name: str, module: torch.nn.Module) -> None:
        target = self._fault.target
        if target in (Target.WEIGHTS, Target.TIME):
            self._keep(module.register_forward_pre_hook(lambda m, _: self._before(name, m)))
        elif target is Target.OUTPUT:
            self._keep(module.register_forward_hook(lambda _m, _a, output: self._behind(name, output)))
        elif target is Target.GRADIENTS:
            for place, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad and fnmatchcase(place, self._fault.place):
                    tensor: Any = parameter
                    self._keep(tensor.register_hook(lambda grad, n=name, p=place: self._grad(n, p, grad)))

    def _before(self, name: str, module: torch.nn.Module) -> None:
        if not self._due(name):
            return
        if self._fault.target is Target.TIME:
            time.sleep(self._fault.delay_s)
            return
        for place, parameter in module.named_parameters():
            if fnmatchcase(place, self._fault.place):
                self._fault.corrupt(parameter, place)
                return

    def _behind(self, name: str, output: Any) -> Any:
        if isinstance(output, torch.Tensor) and self._due(name):
            self._fault.corrupt(output, "0")
        return output

    def _grad(self, name: str, place: str, gradient: torch.Tensor) -> torch.Tensor:
        return self._fault.corrupt(gradient.clone(), place) if self._due(name) else gradient

    def _spoil_state(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        tensors = [
            value
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor) and value.dim()
        ]
        if tensors and self._due("optimizer"):
            self._fault.corrupt(tensors[self._fault.seed % len(tensors)], "0")

    def _due(self, name: str) -> bool:
        """It strikes now, which is counted."""
        fault = self._fault
        module = fault.module if name == "optimizer" else name
        due = (
            self.strikes < fault.shots
            and fault.concerns(fault.target, module, self.step)
            and fault.strikes(self.step, name)
        )
        self.strikes += due
        return due


def install(fault: Fault, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Drill:
    """The model breaks as ``fault`` says. ``module`` patterns are names within ``model``, "" for itself.

    Raises:
        NotEnabled: the kit is off.
    """
    if not enabled():
        raise NotEnabled(f"set {SWITCH}=1 or call faults.enable() first")
    return Drill(fault, model, optimizer)
