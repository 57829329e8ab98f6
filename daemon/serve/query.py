"""The Query service: what people and restart tools ask. Read-only; answers from memory, never waits for a
round of the main loop. Only for the layout of a job the agents of other nodes are asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from scoutd.daemon.clock import Stamps
from scoutd.daemon.codec import verdict_from_bytes
from scoutd.daemon.config import Config
from scoutd.daemon.jobs import Job
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.peer.parties import Member
from scoutd.daemon.seams import UnobservedPort
from scoutd.daemon.serve import bundles, layout, status
from scoutd.daemon.serve.limits import encode_limits
from scoutd.daemon.shelf import KEPT, Shelf
from scoutd.daemon.watchers import Watcher, Watchers
from scoutd.proto.v1 import query_pb2 as pb
from scoutd.proto.v1 import query_pb2_grpc, verdict_pb2

MAX_ARCHIVE_BYTES: Final = 15 << 20
"""A little less than the server sends in one message."""


async def _nobody(job: str) -> Mapping[str, bytes | None]:
    """A job on one node."""
    return {}


@dataclass(frozen=True)
class View:
    """What the services may see of the agent; the callables are asked at each request."""

    node: str
    version: str
    started_ns: int
    stamps: Stamps
    clock: Callable[[], int]
    stall_timeout_s: Callable[[], float]
    jobs: Callable[[], Iterable[Job]]
    unobserved: Callable[[], Iterable[UnobservedPort]]
    warnings: Callable[[], Iterable[str]]
    ledger: Ledger
    watchers: Watchers
    members: Callable[[str], list[Member]] = field(default=lambda job: [])
    layouts: Callable[[str], Awaitable[Mapping[str, bytes | None]]] = field(default=_nobody)
    shelf: Shelf = field(default_factory=Shelf)
    config: Callable[[], Config] = field(default=Config)

    def selected(self, job: str) -> list[Job]:
        """All jobs, or the one of this name."""
        return [each for each in self.jobs() if not job or each.name == job]


class QueryService(query_pb2_grpc.QueryServicer):
    def __init__(self, view: View) -> None:
        self._view: Final = view

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        view = self._view
        now = view.clock()
        return pb.GetStatusResponse(
            node=view.node,
            version=view.version,
            pid=os.getpid(),
            started_at=view.stamps.text(view.started_ns),
            stall_timeout_s=view.stall_timeout_s(),
            jobs=[
                status.encode_job(job, view.stamps, now, view.members(job.name))
                for job in view.selected(request.job)
            ],
            unobserved=status.encode_unobserved(view.unobserved()),
            warnings=list(view.warnings()),
        )

    async def ListVerdicts(self, request: pb.ListVerdictsRequest, context: Any) -> pb.ListVerdictsResponse:
        found = self._view.ledger.select(
            job=request.job, verdict_id=request.id, suppressed=request.suppressed or bool(request.id)
        )
        return pb.ListVerdictsResponse(verdicts=[verdict_from_bytes(entry.message) for entry in found])

    async def GetTopology(self, request: pb.GetTopologyRequest, context: Any) -> pb.GetTopologyResponse:
        """Of the whole job: the agents of other nodes are asked, for three seconds at most."""
        jobs = [job for job in self._view.selected(request.job) if not job.observation.starting]
        told = await asyncio.gather(*(self._view.layouts(job.name) for job in jobs))
        parts = [(layout.encode_part(job), others) for job, others in zip(jobs, told, strict=True)]
        return pb.GetTopologyResponse(jobs=[layout.whole(mine, others) for mine, others in parts])

    async def GetBundle(self, request: pb.GetBundleRequest, context: Any) -> pb.GetBundleResponse:
        view = self._view
        found = view.shelf.find(request.id)
        if not found:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"no evidence of verdict {request.id!r} is kept; the newest {KEPT} are",
            )
        if len(found) > 1:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"{request.id} is the beginning of {', '.join(each.id for each in found)}",
            )
        archive = bundles.make(found[0], view.ledger, view.stamps, view.config(), view.node, view.version)
        if len(archive) > MAX_ARCHIVE_BYTES:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the bundle has {len(archive)} bytes, at most {MAX_ARCHIVE_BYTES} are sent",
            )
        return pb.GetBundleResponse(id=found[0].id, archive=archive)

    async def GetLimits(self, request: pb.GetLimitsRequest, context: Any) -> pb.GetLimitsResponse:
        stall = self._view.config().stall
        return pb.GetLimitsResponse(
            jobs=[encode_limits(job, stall) for job in self._view.selected(request.job)]
        )

    async def WatchVerdicts(
        self, request: pb.WatchVerdictsRequest, context: Any
    ) -> AsyncIterator[verdict_pb2.Verdict]:
        """Subscribed before the past is read, so that no change falls between the two."""
        watcher = self._view.watchers.add()
        if watcher is None:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watchers")
            return
        try:
            for entry in self._view.ledger.select(job=request.job, run=request.run):
                yield verdict_from_bytes(entry.message)
            async for message in _changes(watcher, request):
                yield message
        finally:
            self._view.watchers.remove(watcher)
        if watcher.lost:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this watcher was too slow, ask again")


async def _changes(watcher: Watcher, request: pb.WatchVerdictsRequest) -> AsyncIterator[verdict_pb2.Verdict]:
    while (entry := await watcher.next()) is not None:
        if request.job in ("", entry.job) and request.run in ("", entry.run):
            yield verdict_from_bytes(entry.message)
