"""Asynchronous calls from their return to their completion.

A call with ``async_op=True`` stays pending until its work completes. Works are held weakly: a strong
reference would keep the user's tensors alive. Three things end a call: ``Work.wait`` returns (the wait is
published as a coordinate, and the call as waited for), the publisher thread finds it completed, or the
user drops the work (then the call counts as returned; whether the collective finished is the recorder's
to say). Completion is polled for CPU backends only: a query from another thread can break the capture of
a CUDA graph.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final, NamedTuple

import torch
from torch.compiler import is_compiling

from scoutd.proto.shm import CallState, Phase
from scoutd.shim.calls import Calls, OpenCall
from scoutd.shim.coordinates import Coordinates, encode
from scoutd.shim.groups import GroupState
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Function, Undo, swap_method

_WAIT: Final = encode("Work.wait")


class Watched(NamedTuple):
    reference: weakref.ref[Any]
    call: OpenCall
    polled: bool


class Works:
    """Works in flight, by the identity of their Python object."""

    def __init__(self, calls: Calls, coordinates: Coordinates) -> None:
        self._calls: Final = calls
        self.coordinates: Final = coordinates
        self._watched: dict[int, Watched] = {}
        self._dropped: deque[OpenCall] = deque()

    def watch(self, work: Any, call: OpenCall, state: GroupState) -> None:
        """The call ends when the work does. An object that cannot be referenced weakly ends it now."""
        key = id(work)
        try:
            reference = weakref.ref(work, lambda _: self._collected(key))
        except TypeError:
            self._calls.end(call, CallState.DONE)
            return
        self._watched[key] = Watched(reference, call, state.backend == "gloo")

    def take(self, work: Any) -> OpenCall | None:
        """The work's call, which is the caller's to end; None for a work that nobody published."""
        watched = self._watched.pop(id(work), None)
        return None if watched is None else watched.call

    def poll(self) -> None:
        """Calls whose work has completed or was dropped have ended."""
        while self._dropped:
            self._calls.end(self._dropped.popleft(), CallState.DONE)
        for key, watched in list(self._watched.items()):
            work = watched.reference()
            if work is not None and watched.polled and work.is_completed() and self._watched.pop(key, None):
                self._calls.end(watched.call, CallState.DONE)

    def _collected(self, key: int) -> None:
        """Runs inside the garbage collector: no lock, no write."""
        watched = self._watched.pop(key, None)
        if watched is not None:
            self._dropped.append(watched.call)

    def begin_wait(self, work: Any) -> tuple[OpenCall | None, int]:
        """The host's wait for this work is published."""
        call = self.take(work)
        operation = _WAIT
        if call is not None:
            operation = call.template.operation
            self._calls.wait(call, self.coordinates.writer.thread)
        return call, self.coordinates.enter(Phase.COLLECTIVE, operation, 1)

    def end_wait(self, call: OpenCall | None, depth: int, state: int) -> None:
        """The wait is over, and with it the call."""
        if call is not None:
            self._calls.end(call, state)
        self.coordinates.leave(depth)


def install(works: Works, guard: Guard, undo: Undo) -> None:
    """``Work.wait`` publishes that the host is inside it."""
    part = guard.part("works")
    coordinates = works.coordinates

    def wrap(inner: Function) -> Function:
        # pybind11 recognises a call from inside the overriding function by this name and first argument.
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not part.on or coordinates.writer.busy:
                return inner(self, *args, **kwargs)
            begun = guard.run("works", lambda: works.begin_wait(self), None)
            if begun is None:
                return inner(self, *args, **kwargs)
            state = CallState.FAILED
            try:
                result = inner(self, *args, **kwargs)
                state = CallState.DONE
                return result
            finally:
                guard.run("works", lambda: works.end_wait(*begun, state), None)

        return wait

    swap_method(torch._C._distributed_c10d.Work, "wait", wrap, undo)
