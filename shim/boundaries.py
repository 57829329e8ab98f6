"""Boundaries other than modules and collectives: optimizer, data, checkpoint, backward, compile, store, exit.

Most are calls that may block, bracketed by one coordinate (``bracket``). Functions of modules that the
trainer may never import (checkpoint library, dynamo) are bracketed when they arrive.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed.distributed_c10d as c10d
from torch.compiler import is_compiling
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from scoutd.proto.shm import Phase
from scoutd.shim.arming import ImportWatch
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.guard import FAULT, Guard
from scoutd.shim.intercept import Function, Undo, Wrap, swap

CHECKPOINT_FUNCTIONS: Final = {
    "torch.serialization": ("save", "load"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "async_save"),
    "torch.distributed.checkpoint.state_dict_loader": ("load",),
}


class Boundaries:
    """What every bracket needs."""

    def __init__(self, coordinates: Coordinates, guard: Guard, undo: Undo, watch: ImportWatch) -> None:
        self.coordinates: Final = coordinates
        self.guard: Final = guard
        self.undo: Final = undo
        self.watch: Final = watch

    def bracket(
        self,
        part_name: str,
        phase: int,
        operation: str,
        waiting: int = 0,
        before: Callable[[], None] | None = None,
    ) -> Wrap:
        """A wrap whose calls stand between entering and leaving this coordinate."""
        part = self.guard.part(part_name)
        encoded = encode(operation)
        phase = int(phase)
        coordinates = self.coordinates
        guard = self.guard

        def begin() -> int:
            if before is not None:
                before()
            return coordinates.enter(phase, encoded, waiting)

        def wrap(inner: Function) -> Function:
            def bracketed(*args: Any, **kwargs: Any) -> Any:
                if is_compiling() or not part.on:
                    return inner(*args, **kwargs)
                depth = guard.run(part_name, begin, -1)
                try:
                    return inner(*args, **kwargs)
                finally:
                    if depth >= 0 and part.on:
                        guard.run(part_name, lambda: coordinates.leave(depth), None)

            return bracketed

        return wrap

    def swap(self, function: Function, wrap: Wrap) -> None:
        swap(function, wrap, self.undo)


AfterStep = Callable[[Optimizer, bool], None]
"""Called after each optimizer step; whether a step of the training loop is over with it."""


def install_optimizers(boundaries: Boundaries, after_step: AfterStep) -> None:
    """Optimizer steps are published and counted; ``after_step`` runs, guarded, after each."""
    coordinates, guard = boundaries.coordinates, boundaries.guard
    part = guard.part("optimizer")
    steps = StepCount(coordinates)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_compiling() or not part.on:
            return
        try:
            steps.begin(optimizer)
        except FAULT as error:
            guard.failed(part, error)

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if is_compiling() or not part.on:
            return
        try:
            counted = steps.end(optimizer)
        except FAULT as error:
            guard.failed(part, error)
            return
        guard.run("replay", lambda: after_step(optimizer, counted), None)

    boundaries.undo.add(register_optimizer_step_pre_hook(before).remove)
    boundaries.undo.add(register_optimizer_step_post_hook(after).remove)


class StepCount:
    """Counts steps of the training loop, which may own several optimizers.

    The first optimizer that steps leads: when its step ends, one step of the loop is over. Another one
    becomes the leader when it steps twice without it. An optimizer that steps inside another's step
    (sharded wrappers) is not counted.
    """

    def __init__(self, coordinates: Coordinates) -> None:
        self._coordinates = coordinates
        self._leader = 0
        self._seen: set[int] = set()
        self._inside: list[int] = []
        self._operations: dict[type, bytes] = {}

    def begin(self, optimizer: Optimizer) -> None:
        kind = type(optimizer)
        operation = self._operations.get(kind)
        if operation is None:
            operation = self._operations[kind] = encode(f"optimizer step ({kind.__name__})")
        if id(optimizer) in self._inside:
            self._inside.clear()
        writer = self._coordinates.writer
        if not self._inside:
            self._coordinates.drop_stale(writer)
        self._inside.append(id(optimizer))
        self._coordinates.enter_hooked(writer, Phase.OPTIMIZER, operation)

    def end(self, optimizer: Optimizer) -> bool:
        """Whether a step of the loop is over."""
        key = id(optimizer)
        if key in self._inside:
            del self._inside[self._inside.index(key) :]
        counted = not self._inside and self._count(key)
        operation = self._operations.get(type(optimizer), b"")
        self._coordinates.leave_hooked(self._coordinates.writer, operation)
        return counted

    def _count(self, key: int) -> bool:
        if not self._leader or key in self._seen:
            self._leader = key
        if key != self._leader:
            self._seen.add(key)
            return False
        self._coordinates.step += 1
        self._seen.clear()
        return True


def install_input(boundaries: Boundaries) -> None:
    """The DataLoader's ``__next__`` is published."""

    def arrived(module: types.ModuleType) -> None:
        step = module._BaseDataLoaderIter.__next__
        boundaries.swap(step, boundaries.bracket("input", Phase.INPUT, "DataLoader.__next__"))

    boundaries.watch.when_imported("torch.utils.data.dataloader", arrived)


def install_checkpoints(boundaries: Boundaries) -> None:
    """torch.save and load, and the distributed checkpoint's, are published."""

    def arrived(module: types.ModuleType) -> None:
        short = "torch" if module.__name__ == "torch.serialization" else "torch.distributed.checkpoint"
        for name in CHECKPOINT_FUNCTIONS[module.__name__]:
            wrap = boundaries.bracket("checkpoint", Phase.CHECKPOINT, f"{short}.{name}")
            boundaries.swap(getattr(module, name), wrap)

    for name in CHECKPOINT_FUNCTIONS:
        boundaries.watch.when_imported(name, arrived)


def install_compile(boundaries: Boundaries) -> None:
    """Dynamo's compilations are published, once the trainer has imported dynamo.

    Its lists of callbacks are not used: ``torch._dynamo.reset`` empties them.
    """
    coordinates, guard = boundaries.coordinates, boundaries.guard
    part = guard.part("compile")
    operation = encode("torch.compile")
    depths: list[int] = []

    def start() -> None:
        if part.on:
            guard.run("compile", lambda: depths.append(coordinates.enter(Phase.COMPILE, operation)), None)

    def end() -> None:
        if part.on and depths:
            guard.run("compile", lambda: coordinates.leave(depths.pop()), None)

    def noticing(notice: Callable[[], None]) -> Wrap:
        def wrap(inner: Function) -> Function:
            def noticed(*args: Any, **kwargs: Any) -> Any:
                notice()
                return inner(*args, **kwargs)

            return noticed

        return wrap

    def arrived(module: types.ModuleType) -> None:
        kind = module.CompilationCallbackHandler
        boundaries.swap(kind.run_start_callbacks, noticing(start))
        boundaries.swap(kind.run_end_callbacks, noticing(end))

    boundaries.watch.when_imported("torch._dynamo.callback", arrived)


def install_backward(boundaries: Boundaries, begins: Callable[[], None]) -> None:
    """The backward pass is published from its start to its end; ``begins`` runs before each."""
    function = torch.autograd.graph._engine_run_backward
    boundaries.swap(function, boundaries.bracket("backward", Phase.BACKWARD, "backward", before=begins))


def install_groups(boundaries: Boundaries, let_go: Callable[[], None]) -> None:
    """Wrapping a model blocks until all members come; leaving is publishing EXITING.

    ``let_go`` is called before the default group is destroyed.

    Who has destroyed the default group has left the job, whatever the process does afterwards: it may end
    without passing the interpreter's exit, by a launcher's ``os._exit``.
    """
    wrap = boundaries.bracket("groups", Phase.EXITING, "destroy_process_group")
    left = encode("after destroy_process_group")
    coordinates, guard = boundaries.coordinates, boundaries.guard

    def leaves(function: Function) -> Function:
        bracketed = wrap(function)

        def destroys(*args: Any, **kwargs: Any) -> Any:
            group = args[0] if args else kwargs.get("group")
            if group is None or group is c10d.GroupMember.WORLD:
                guard.run("groups", let_go, None)
            result = bracketed(*args, **kwargs)
            if not c10d.is_initialized():
                guard.run(
                    "groups", lambda: coordinates.publish(coordinates.writer, Phase.EXITING, left, 0), None
                )
            return result

        return destroys

    boundaries.swap(c10d.destroy_process_group, leaves)
    ddp = torch.nn.parallel.DistributedDataParallel
    wrap = boundaries.bracket("groups", Phase.INIT, "DistributedDataParallel()", waiting=1)
    boundaries.swap(ddp.__init__, wrap)
