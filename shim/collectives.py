"""Interceptors of the public collectives and P2P calls: published before the call, closed after it.

Only leaves are intercepted (object collectives reach them by themselves), and while one public call is
open on a thread the calls below it are its own (``all_gather_into_tensor`` calls ``all_gather_single``,
``send`` calls ``isend``). Every interceptor begins with the question whether dynamo is tracing it, because
then it must be nothing but the call it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch.distributed.distributed_c10d as c10d
from torch.compiler import is_compiling

from scoutd.proto.shm import CallKind, CallState, Phase
from scoutd.shim.calls import Calls, OpenCall
from scoutd.shim.coordinates import Coordinates, Writer
from scoutd.shim.groups import Groups, GroupState
from scoutd.shim.guard import FAULT, Guard, Part
from scoutd.shim.intercept import Function, Undo, inner_parameters, swap
from scoutd.shim.signatures import (
    COLLECTIVES,
    P2P,
    Spec,
    collective_template,
    first_tensor,
    p2p_template,
)
from scoutd.shim.splits import packed_splits
from scoutd.shim.works import Works

COLLECTIVE: Final = int(Phase.COLLECTIVE)
DONE: Final = int(CallState.DONE)
FAILED: Final = int(CallState.FAILED)
MADE_OF_P2P: Final = b"monitored_barrier"
_PENDING_WORK: Final = getattr(c10d, "_IllegalWork", ())


Begin = Callable[[Writer, dict[str, Any]], "Published | None"]
Watch = Callable[[Any, OpenCall, GroupState], None]


class Published:
    """A call between its publication and its end. ``depth`` is the coordinate to return to, ``raw`` what
    the backend's counter said before the call."""

    __slots__ = ("asynchronous", "call", "depth", "raw", "state")

    def __init__(
        self, call: OpenCall | None, state: GroupState, raw: int, depth: int, asynchronous: bool
    ) -> None:
        self.call = call
        self.state = state
        self.raw = raw
        self.depth = depth
        self.asynchronous = asynchronous


class Publication:
    """Publishes calls; everything that interceptors share."""

    def __init__(self, groups: Groups, calls: Calls, works: Works, coordinates: Coordinates) -> None:
        self.groups: Final = groups
        self.calls: Final = calls
        self.works: Final = works
        self.coordinates: Final = coordinates
        self.peers: dict[tuple[int, int, int, int], int] = {}

    def begin_collective(self, writer: Writer, spec: Spec, given: dict[str, Any]) -> Published | None:
        """The collective is published as pending; None where this rank is no member, or the call only
        joins a batch that is launched later."""
        group = given.get("group")
        state = self.groups.state(group)
        if state is None:
            return None
        if c10d._world.pg_coalesce_state and self._coalescing(group) and "launching" not in given:
            return None
        waiting = 0 if given.get("async_op") else 1
        template = collective_template(spec, state, given)
        raw = state.raw()
        sequence = state.next_sequence(raw)
        splits = packed_splits(spec.operation, given, state.size) if spec.splits else b""
        call = self.calls.begin(state.group, sequence, template, waiting, writer.thread, splits=splits)
        self.groups.write_counters(state, sequence)
        self.calls.remember(state, sequence, template.fingerprint)
        depth = self.coordinates.enter(COLLECTIVE, template.operation, waiting)
        state.frozen = template.operation == MADE_OF_P2P
        return Published(call, state, raw, depth, not waiting)

    def begin_p2p(self, writer: Writer, name: str, kind: int, given: dict[str, Any]) -> Published | None:
        """The P2P call is published as pending; its sequence counts calls to this peer with this tag."""
        state = self.groups.state(given.get("group"))
        tensor = first_tensor(given.get("tensor"))
        if state is None or tensor is None:
            return None
        peer = _peer_of(kind, state, given)
        tag = int(given.get("tag") or 0)
        key = (state.group, kind, peer, tag)
        sequence = self.peers[key] = self.peers.get(key, 0) + 1
        raw = state.raw()
        if state.counts_p2p:
            state.p2p += 1
        waiting = 0 if name in ("isend", "irecv") else 1
        template = p2p_template(name, kind, state, tensor)
        call = self.calls.begin(state.group, sequence, template, waiting, writer.thread, peer, tag)
        depth = self.coordinates.enter(COLLECTIVE, template.operation, waiting)
        return Published(call, state, raw, depth, not waiting)

    def end(self, published: Published, result: Any, watch: Watch | None = None) -> None:
        """The call has returned: it is done, or its work is watched until it is."""
        call = published.call
        if call is not None:
            if published.asynchronous and result is not None and not isinstance(result, _PENDING_WORK):
                (watch or self.works.watch)(result, call, published.state)
            else:
                self.calls.end(call, DONE)
        if published.state.frozen:
            self._uncount(published)
        self.coordinates.leave(published.depth)

    def fail(self, published: Published, _: Any) -> None:
        """The call raised: it keeps its fingerprint. A call that was refused before it was enqueued is
        taken back from the counters."""
        state, call = published.state, published.call
        if call is not None:
            self.calls.end(call, FAILED)
        if state.frozen:
            self._uncount(published)
        elif call is not None and state.has_counter and state.raw() == published.raw:
            if call.template.kind == CallKind.COLLECTIVE:
                state.highest = 0
            elif state.counts_p2p:
                state.p2p -= 1
        self.coordinates.leave(published.depth)

    def _uncount(self, published: Published) -> None:
        """Gloo counted the parts of a call that is no collective to it, on each rank another number."""
        state = published.state
        state.uncount(published.raw)
        self.groups.write_counters(state, state.enqueued())

    def _coalescing(self, group: Any) -> bool:
        return (group or c10d.GroupMember.WORLD) in c10d._world.pg_coalesce_state


def _peer_of(kind: int, state: GroupState, given: dict[str, Any]) -> int:
    """The peer's global rank, -1 for a receive from anybody."""
    side = "dst" if kind == CallKind.P2P_SEND else "src"
    in_group = given.get("group_" + side)
    if in_group is not None:
        return state.rank_of[int(in_group)]
    peer = given.get(side)
    return -1 if peer is None else int(peer)


def interceptor(
    inner: Function,
    names: tuple[str, ...],
    begin: Begin,
    publication: Publication,
    guard: Guard,
    part: Part,
    watch: Watch | None = None,
) -> Function:
    """``inner``, published. ``names`` are the parameters that positional arguments stand for; ``watch``
    gets the result of an asynchronous call, where that is no Work."""
    coordinates = publication.coordinates

    def end(published: Published, result: Any) -> None:
        publication.end(published, result, watch)

    def published_call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not part.on:
            return inner(*args, **kwargs)
        writer = getattr(coordinates.local, "writer", None) or coordinates.writer
        if writer.busy:
            return inner(*args, **kwargs)
        published = None
        try:
            given = dict(zip(names, args))  # noqa: B905  fewer arguments than names is the normal case
            given.update(kwargs)
            published = begin(writer, given)
        except FAULT as error:
            guard.failed(part, error)
        if published is None:
            return inner(*args, **kwargs)
        writer.busy = True
        try:
            result = inner(*args, **kwargs)
        except BaseException:
            writer.busy = False
            _close(publication.fail, published, None, guard, part)
            raise
        writer.busy = False
        _close(end, published, result, guard, part)
        return result

    return published_call


def _close(
    close: Callable[[Published, Any], None], published: Published, result: Any, guard: Guard, part: Part
) -> None:
    if not part.on:
        return
    try:
        close(published, result)
    except FAULT as error:
        guard.failed(part, error)


def install(publication: Publication, guard: Guard, undo: Undo) -> None:
    """Every public collective and P2P call of the installed torch is published."""
    collectives = guard.part("collectives")
    p2p = guard.part("p2p")

    def collective(name: str, spec: Spec) -> None:
        function = getattr(c10d, name)
        names = inner_parameters(function)

        def begin(writer: Writer, given: dict[str, Any]) -> Published | None:
            return publication.begin_collective(writer, spec, given)

        swap(function, lambda f: interceptor(f, names, begin, publication, guard, collectives), undo)

    def point_to_point(name: str, kind: int) -> None:
        function = getattr(c10d, name)
        names = inner_parameters(function)

        def begin(writer: Writer, given: dict[str, Any]) -> Published | None:
            return publication.begin_p2p(writer, name, kind, given)

        swap(function, lambda f: interceptor(f, names, begin, publication, guard, p2p), undo)

    for name, spec in COLLECTIVES.items():
        if hasattr(c10d, name):
            collective(name, spec)
    for name, kind in P2P.items():
        if hasattr(c10d, name):
            point_to_point(name, kind)
