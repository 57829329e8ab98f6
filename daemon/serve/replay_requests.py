"""Replays on request: which recipe is meant, and telling the local ranks.

A request has an id that is new and equal on all ranks; the group's first rank chooses the step at which all
begin. Ranks of other nodes have to be told by their own agents, with the same id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scoutd.agent.replay import RecipeState, RecipeView
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.jobs import Job
from scoutd.proto.replay import Request
from scoutd.proto.v1 import query_pb2 as pb

EXPIRES_S: Final = 60.0
MOST_EXPIRES_S: Final = 3600.0
MOST_VARIANTS: Final = 64
Tell = Callable[[str, Request], Mapping[int, bool]]
"""Writes a job's request into its local ranks' files; by rank, whether it could."""


class NotAccepted(ValueError):
    """The request names no job, no recipe, or several."""


@dataclass
class ReplayRequests:
    """``elsewhere``: names of the job's nodes that this agent cannot tell."""

    jobs: Callable[[], Iterable[Job]]
    tell: Tell
    elsewhere: Callable[[str], list[str]]
    clock: Callable[[], int]
    last: int = 0

    def order(self, asked: pb.RequestReplayRequest) -> pb.RequestReplayResponse:
        """The local ranks have been told.

        Raises:
            NotAccepted: the text says why.
        """
        job = self._job(asked.job)
        views = _chosen(job, asked.recipe)
        expires_s = min(asked.expires_s or EXPIRES_S, MOST_EXPIRES_S)
        self.last = max(self.last + 1, int(time.time() * 1000))
        request = Request(
            request=self.last,
            recipe=views[0].recipe if asked.recipe else 0,
            expires_ns=self.clock() + int(expires_s * NS_PER_S),
            variants=min(asked.variants or 1, MOST_VARIANTS),
        )
        told = self.tell(job.name, request)
        return pb.RequestReplayResponse(
            job=job.name,
            request=request.request,
            ranks=[rank for rank, written in sorted(told.items()) if written],
            refused=[rank for rank, written in sorted(told.items()) if not written],
            elsewhere=self.elsewhere(job.name),
            recipes=[view.name for view in views],
        )

    def _job(self, name: str) -> Job:
        jobs = [job for job in self.jobs() if (not name or job.name == name) and not job.gone]
        if len(jobs) == 1:
            return jobs[0]
        if not jobs:
            raise NotAccepted(f"there is no job {name}" if name else "no job is running on this node")
        raise NotAccepted(f"several jobs are running, choose one: {', '.join(job.name for job in jobs)}")


def _chosen(job: Job, wanted: str) -> list[RecipeView]:
    """The recipes that are meant, one form of each; all for an empty ``wanted``."""
    known = {view.recipe: view for rank in job.observation.report.ranks for view in rank.recipes}
    ready = [view for view in known.values() if view.state is not RecipeState.DISABLED]
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
