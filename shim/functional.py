"""Functional collectives: what DTensor, tensor parallelism and users of ``_functional_collectives`` call.

They return a tensor that is not there yet; whoever first needs it ends in ``wait_tensor``, which blocks. So
the call is published as asynchronous, and the wait finds its call by the storage of the tensor that it is
given (a view waits for the same collective). A result that is dropped without a wait ends its call. Results
are held weakly.

A traced program has no such calls (tensors are fake, compiled code runs the operators themselves): there
only the recorder sees the collective.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections import deque
from typing import Any, Final

import torch
import torch.distributed.distributed_c10d as c10d
from torch.compiler import is_compiling

from scoutd.proto.shm import CallState
from scoutd.shim.arming import ImportWatch
from scoutd.shim.calls import OpenCall
from scoutd.shim.collectives import COLLECTIVE, Publication, Published, interceptor
from scoutd.shim.coordinates import Writer, encode
from scoutd.shim.groups import GroupState
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Function, Undo, inner_parameters, swap_traced
from scoutd.shim.signatures import FUNCTIONAL, Spec

MODULE: Final = "torch.distributed._functional_collectives"
IN_FLIGHT_LIMIT: Final = 32
"""Half of the CALLS table: results that nobody waits for must leave room for other calls."""

_WAIT: Final = encode("wait_tensor")


class Results:
    """Results on their way, by the storage they will be in."""

    def __init__(self, publication: Publication) -> None:
        self._publication: Final = publication
        self._open: dict[int, tuple[weakref.ref[Any], OpenCall]] = {}
        self._dropped: deque[OpenCall] = deque()

    def watch(self, result: Any, call: OpenCall, state: GroupState) -> None:
        """The call stays pending until its result is waited for or dropped."""
        self.settle_dropped()
        first = result[0] if isinstance(result, (list, tuple)) and result else result
        tensor = getattr(first, "elem", None)
        if tensor is None or len(self._open) >= IN_FLIGHT_LIMIT:
            self._publication.calls.end(call, CallState.DONE)
            return
        key = _storage(tensor)
        before = self._open.pop(key, None)
        if before is not None:
            self._publication.calls.end(before[1], CallState.DONE)
        self._open[key] = (weakref.ref(first, lambda _: self._collected(key, call)), call)

    def take(self, tensor: Any) -> OpenCall | None:
        """The call that fills this tensor's storage, which is the caller's to end."""
        if not self._open:
            return None
        found = self._open.pop(_storage(tensor), None)
        return None if found is None else found[1]

    def settle_dropped(self) -> None:
        while self._dropped:
            self._publication.calls.end(self._dropped.popleft(), CallState.DONE)

    def _collected(self, key: int, call: OpenCall) -> None:
        """Runs inside the garbage collector: no lock, no write."""
        found = self._open.get(key)
        if found is not None and found[1] is call:
            del self._open[key]
            self._dropped.append(call)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def group_of(given: Any) -> Any:
    """The process group that a functional collective's ``group`` stands for, None for lists of ranks."""
    if isinstance(given, c10d.ProcessGroup):
        return given
    if isinstance(given, str):
        return torch._C._distributed_c10d._resolve_process_group(given)  # type: ignore[arg-type]
    if isinstance(given, tuple):
        return given[0].get_group(given[1])
    return given.get_group() if hasattr(given, "get_group") else None


def install(publication: Publication, guard: Guard, undo: Undo, watch: ImportWatch) -> None:
    """Functional collectives and the waits for their results are published, once the module is there."""
    results = Results(publication)

    def arrived(module: types.ModuleType) -> None:
        for name, spec in FUNCTIONAL.items():
            if hasattr(module, name):
                _publish(getattr(module, name), module, spec)
        swap_traced(module.wait_tensor, lambda inner: _waits(inner, results, publication, guard), undo)

    def _publish(function: Function, module: types.ModuleType, spec: Spec) -> None:
        names = inner_parameters(function)

        def begin(writer: Writer, given: dict[str, Any]) -> Published | None:
            group = None if module._are_we_tracing() else group_of(given.get("group"))
            if group is None:
                return None
            operation = sys.intern(str(given.get("reduceOp", "")).upper())
            return publication.begin_collective(
                writer, spec, {**given, "group": group, "op": operation, "async_op": True}
            )

        part = guard.part("functional")
        swap_traced(
            function,
            lambda f: interceptor(f, names, begin, publication, guard, part, results.watch),
            undo,
        )

    watch.when_imported(MODULE, arrived)


def _waits(inner: Function, results: Results, publication: Publication, guard: Guard) -> Function:
    part = guard.part("functional")
    coordinates = publication.coordinates

    def begin(tensor: Any) -> tuple[OpenCall | None, int]:
        call = results.take(tensor)
        if call is not None:
            publication.calls.wait(call, coordinates.writer.thread)
        operation = _WAIT if call is None else call.template.operation
        return call, coordinates.enter(COLLECTIVE, operation, 1)

    def end(call: OpenCall | None, depth: int, state: int) -> None:
        if call is not None:
            publication.calls.end(call, state)
        coordinates.leave(depth)

    def wait_tensor(tensor: Any) -> Any:
        if is_compiling() or not part.on or type(tensor) is not torch.Tensor or coordinates.writer.busy:
            return inner(tensor)
        begun = guard.run("functional", lambda: begin(tensor), None)
        if begun is None:
            return inner(tensor)
        state = CallState.FAILED
        try:
            result = inner(tensor)
            state = CallState.DONE
            return result
        finally:
            guard.run("functional", lambda: end(*begun, state), None)

    return wait_tensor
