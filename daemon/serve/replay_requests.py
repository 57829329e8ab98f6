"""Replays on request: which recipe is meant, and telling the ranks of all nodes.

A request has an id that is new and equal on all ranks; the group's first rank chooses the step at which all
begin. The agent that is asked tells its own ranks and orders the same of all other agents of the job; one
that hears the same order again does not tell its ranks again. Who may ask is decided where it is asked: on
the agent's own socket, or with the key of the job.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scoutd.agent.messages import Order, OrderReply
from scoutd.agent.replay import RecipeMode, RecipeState, RecipeView
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.jobs import Job
from scoutd.proto.replay import Request
from scoutd.proto.v1 import query_pb2 as pb

EXPIRES_S: Final = 60.0
MOST_EXPIRES_S: Final = 3600.0
MOST_VARIANTS: Final = 64
MOST_KNOWN: Final = 256
Tell = Callable[[str, Request], Mapping[int, bool]]
"""Writes a job's request into its local ranks' files; by rank, whether it could."""
Spread = Callable[[str, Order], Awaitable[Mapping[str, OrderReply | None]]]
"""Orders the same of the job's other agents; by node, None where it could not be told."""


class NotAccepted(ValueError):
    """The request names no job, no recipe, or several."""


@dataclass
class ReplayRequests:
    """``last``: the highest id that is known. ``known``: what came of the newest orders."""

    jobs: Callable[[], Iterable[Job]]
    tell: Tell
    spread: Spread
    clock: Callable[[], int]
    last: int = 0
    known: OrderedDict[tuple[str, int], OrderReply] = field(default_factory=OrderedDict)

    async def order(self, asked: pb.RequestReplayRequest) -> pb.RequestReplayResponse:
        """The ranks of all nodes that could be reached have been told.

        Raises:
            NotAccepted: the text says why.
        """
        job = self._job(asked.job)
        views = _chosen(job, asked.recipe)
        expires_s = min(asked.expires_s or EXPIRES_S, MOST_EXPIRES_S)
        order = Order(
            request=max(self.last + 1, int(time.time() * 1000)),
            recipe=views[0].recipe if asked.recipe else 0,
            variants=min(asked.variants or 1, MOST_VARIANTS),
            expires_ns=int(expires_s * NS_PER_S),
        )
        here = self.carry_out(job.name, order)
        others = await self.spread(job.name, order)
        replies = [here, *(reply for reply in others.values() if reply is not None)]
        return pb.RequestReplayResponse(
            job=job.name,
            request=order.request,
            ranks=sorted(rank for reply in replies for rank in reply.ranks),
            refused=sorted(rank for reply in replies for rank in reply.refused),
            elsewhere=sorted(node for node, reply in others.items() if reply is None),
            recipes=[view.name for view in views],
        )

    def carry_out(self, job: str, order: Order) -> OrderReply:
        """The ranks here have been told; at most once for one order."""
        known = self.known.get((job, order.request))
        if known is not None:
            return known
        self.last = max(self.last, order.request)
        request = Request(
            request=order.request,
            recipe=order.recipe,
            expires_ns=self.clock() + min(order.expires_ns, int(MOST_EXPIRES_S * NS_PER_S)),
            variants=min(order.variants, MOST_VARIANTS),
        )
        told = sorted(self.tell(job, request).items())
        reply = OrderReply(
            tuple(rank for rank, written in told if written),
            tuple(rank for rank, written in told if not written),
        )
        self.known[job, order.request] = reply
        if len(self.known) > MOST_KNOWN:
            self.known.popitem(last=False)
        return reply

    def _job(self, name: str) -> Job:
        jobs = [job for job in self.jobs() if (not name or job.name == name) and not job.gone]
        if len(jobs) == 1:
            return jobs[0]
        if not jobs:
            raise NotAccepted(f"there is no job {name}" if name else "no job is running on this node")
        raise NotAccepted(f"several jobs are running, choose one: {', '.join(job.name for job in jobs)}")


def _chosen(job: Job, wanted: str) -> list[RecipeView]:
    """The recipes that are meant, one form of each; all for an empty ``wanted``. Broadcasts are made when
    their turn comes, not on request."""
    known = {view.recipe: view for rank in job.observation.report.ranks for view in rank.recipes}
    asked = [view for view in known.values() if view.mode is not RecipeMode.BROADCAST]
    ready = [view for view in asked if view.state is not RecipeState.DISABLED]
    if not ready:
        raise NotAccepted("no recipe of this job can be replayed; see `scoutd status`")
    if not wanted:
        return ready
    exact = [view for view in ready if wanted in (view.name, view.name.split(" ")[0], f"{view.recipe:016x}")]
    found = exact or [view for view in ready if view.name.startswith(wanted)]
    if len(found) == 1:
        return found
    names = ", ".join(view.name for view in found or ready)
    raise NotAccepted(f"{wanted!r} is {'several' if found else 'none'} of the recipes: {names}")
