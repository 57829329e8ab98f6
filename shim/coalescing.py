"""Coalesced collectives: calls inside ``_coalescing_manager`` that the backend runs as one.

The calls themselves only join the batch; it is launched, and for synchronous batches waited for, when the
context ends. That moment is published as one call, named after the batch ("all_reduce_coalesced").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch.distributed.distributed_c10d as c10d
from torch.compiler import is_compiling

from scoutd.shim.collectives import Publication, Published
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Function, Undo, swap
from scoutd.shim.signatures import COLLECTIVES, Spec

_UNKNOWN: Final = Spec("coalesced", None)


class Batches:
    def __init__(self, publication: Publication) -> None:
        self._publication: Final = publication

    def begin(self, group: Any, asynchronous: bool) -> Published | None:
        """The batch is published as it stands; None where the backend collects it by itself."""
        group = group or c10d._get_default_group()
        batch = c10d._world.pg_coalesce_state.get(group)
        if not batch:
            return None
        known = COLLECTIVES.get(batch[0].op.__name__, _UNKNOWN)
        spec = Spec(known.operation + "_coalesced", "tensor", reduces=known.reduces)
        given = {
            "group": group,
            "tensor": [each.tensor for each in batch],
            "op": batch[0].redop,
            "async_op": asynchronous,
            "launching": True,
        }
        writer = self._publication.coordinates.writer
        published = self._publication.begin_collective(writer, spec, given)
        if published is not None:
            writer.busy = True
        return published

    def end(self, published: Published, manager: Any, failed: bool) -> None:
        self._publication.coordinates.writer.busy = False
        if failed:
            self._publication.fail(published, None)
        else:
            works = getattr(manager, "works", None)
            self._publication.end(published, works[-1] if works else None)


def install(publication: Publication, guard: Guard, undo: Undo) -> None:
    """The end of every coalescing context is published."""
    if not hasattr(c10d, "_coalescing_manager"):
        return
    part = guard.part("coalescing")
    batches = Batches(publication)

    def wrap(inner: Function) -> Function:
        def published(group: Any, asynchronous: bool, args: Any, kwargs: Any) -> Iterator[Any]:
            begun: Published | None = None
            failed = True
            manager = None
            try:
                with contextlib.contextmanager(inner)(*args, **kwargs) as manager:
                    yield manager
                    begun = guard.run("coalescing", lambda: batches.begin(group, asynchronous), None)
                failed = False
            finally:
                if begun is not None:
                    ended = begun
                    guard.run("coalescing", lambda: batches.end(ended, manager, failed), None)

        def coalescing(*args: Any, **kwargs: Any) -> Iterator[Any]:
            if is_compiling() or not part.on:
                return inner(*args, **kwargs)  # type: ignore[no-any-return]
            given = dict(zip(("group", "device", "async_ops"), args, strict=False), **kwargs)
            return published(given.get("group"), bool(given.get("async_ops")), args, kwargs)

        return coalescing

    swap(c10d._coalescing_manager, wrap, undo)
