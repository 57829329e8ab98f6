"""Making process groups: calls that return only when other ranks make the same group.

They use the store, not a collective, so no backend counts them. They are published as collectives of a
*meeting*: a group that exists for scoutd alone, whose members are those who must come (everybody, or with
``use_local_synchronization`` the members of the new group) and whose sequence counts the calls. Who has
come to an earlier meeting only is the one that the others wait for; who makes another group than the others
differs in the argument.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any, Final

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from scoutd.proto import shm
from scoutd.shim.calls import make_template
from scoutd.shim.collectives import Publication, Published, interceptor
from scoutd.shim.coordinates import Writer
from scoutd.shim.groups import GroupState
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Undo, inner_parameters, swap

INIT: Final = int(shm.Phase.INIT)
NAMES: Final = ("new_group", "split_group")
FOR_ALL: Final = " all"
"""Ends the argument where the call returns only once everybody has come."""

WRITTEN_OUT: Final = 40
"""Characters of the argument; longer lists of ranks are named by their hash."""


def ranks_argument(ranks: Iterable[Any]) -> str:
    text = "ranks=" + ",".join(map(str, ranks))
    if len(text) <= WRITTEN_OUT:
        return text
    return f"ranks #{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"


def meeting_of(name: str, given: dict[str, Any]) -> tuple[list[int], str] | None:
    """Who must come, and which group is made; None where this rank waits for nobody."""
    world = c10d._world.pg_group_ranks[c10d._get_default_group()]
    everybody = list(world)
    if name == "split_group":
        parent = given.get("parent_pg")
        return (
            everybody if parent is None else list(c10d._world.pg_group_ranks[parent]),
            ranks_argument(given.get("split_ranks") or ()),
        )
    ranks = given.get("ranks")
    ranks = everybody if ranks is None else sorted(int(rank) for rank in ranks)
    argument = ranks_argument(ranks)
    if not given.get("use_local_synchronization"):
        barrier = os.environ.get("TORCH_DIST_INIT_BARRIER") == "1"
        return everybody, argument + (FOR_ALL if barrier else "")
    return (ranks, argument) if dist.get_rank() in ranks else None


def install(publication: Publication, guard: Guard, undo: Undo) -> None:
    """``new_group`` and ``split_group`` are published as meetings."""
    part = guard.part("groups")

    def publish(name: str) -> None:
        function = getattr(c10d, name)
        names = inner_parameters(function)

        def begin(writer: Writer, given: dict[str, Any]) -> Published | None:
            found = meeting_of(name, given)
            state = None if found is None else publication.groups.meeting(name, found[0])
            if found is None or state is None:
                return None
            return _begin(publication, writer, name, state, found[1])

        swap(function, lambda f: interceptor(f, names, begin, publication, guard, part), undo)

    for name in NAMES:
        if hasattr(c10d, name):
            publish(name)


def _begin(
    publication: Publication, writer: Writer, name: str, state: GroupState, argument: str
) -> Published:
    template = make_template(shm.CallKind.COLLECTIVE, state.group, name, "", 0, argument, "")
    sequence = state.next_sequence(0)
    call = publication.calls.begin(state.group, sequence, template, 1, writer.thread)
    publication.groups.write_counters(state, sequence)
    publication.calls.remember(state, sequence, template.fingerprint)
    depth = publication.coordinates.enter(INIT, template.operation, 1)
    return Published(call, state, 0, depth, asynchronous=False)
