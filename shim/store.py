"""Blocking waits on the key-value store: ``Store.get`` and ``Store.wait`` from Python.

They are published as STORE coordinates and as calls of kind STORE, numbered, with the key as argument.
The shim's own look-ups go to the original methods (``Originals``), so that they are not mistaken for the
trainer's.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import torch

from scoutd.proto.shm import CallKind, CallState, Phase
from scoutd.shim.calls import Calls, OpenCall, make_template
from scoutd.shim.coordinates import Coordinates
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Function, Undo, swap_method

_Store: Final = torch._C._distributed_c10d.Store
ORIGINAL_GET: Final = _Store.get
LET_GO_S: Final = 10.0
"""How long a thread may take to end that holds the store which the trainer gives up: milliseconds, but on a
machine that is overloaded. A store that is still held is found again by the next ``init_process_group``."""


class StoreWaits:
    def __init__(self, calls: Calls, coordinates: Coordinates) -> None:
        self._calls: Final = calls
        self._coordinates: Final = coordinates
        self._count = itertools.count(1)

    def begin(self, name: str, key: Any) -> tuple[OpenCall | None, int]:
        """The wait is published."""
        first = key[0] if isinstance(key, (list, tuple)) and key else key
        template = make_template(CallKind.STORE, 0, f"store {name}", "", 0, str(first), "")
        thread = self._coordinates.writer.thread
        call = self._calls.begin(0, next(self._count), template, 1, thread)
        return call, self._coordinates.enter(Phase.STORE, template.operation, 1)

    def end(self, call: OpenCall | None, depth: int, state: int) -> None:
        if call is not None:
            self._calls.end(call, state)
        self._coordinates.leave(depth)


def install(waits: StoreWaits, coordinates: Coordinates, guard: Guard, undo: Undo) -> None:
    """``get`` and ``wait`` of every store publish that the host is inside them."""
    part = guard.part("store")

    def around(name: str, inner: Function, store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not part.on or coordinates.writer.busy:
            return inner(store, *args, **kwargs)
        key = args[0] if args else next(iter(kwargs.values()), "")
        begun = guard.run("store", lambda: waits.begin(name, key), None)
        if begun is None:
            return inner(store, *args, **kwargs)
        state = CallState.FAILED
        try:
            result = inner(store, *args, **kwargs)
            state = CallState.DONE
            return result
        finally:
            guard.run("store", lambda: waits.end(*begun, state), None)

    # pybind11 recognises a call from inside the overriding function by its name and first argument.
    def wrap_get(inner: Function) -> Function:
        def get(self: Any, *args: Any, **kwargs: Any) -> Any:
            return around("get", inner, self, args, kwargs)

        return get

    def wrap_wait(inner: Function) -> Function:
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            return around("wait", inner, self, args, kwargs)

        return wait

    swap_method(_Store, "get", wrap_get, undo)
    swap_method(_Store, "wait", wrap_wait, undo)
