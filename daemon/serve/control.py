"""The Control service: changes what the agent does, so it answers on the agent's own Unix socket only.

The socket is 0600 in a directory of ours: whoever connects is this user or root. A TCP peer proves nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from scoutd.daemon.codec import verdict_from_bytes
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.serve.replay_requests import NotAccepted, ReplayRequests
from scoutd.proto.v1 import query_pb2 as pb
from scoutd.proto.v1 import query_pb2_grpc


class ControlService(query_pb2_grpc.ControlServicer):
    def __init__(
        self, conclude: Callable[[str], Awaitable[None]], ledger: Ledger, replays: ReplayRequests
    ) -> None:
        self._conclude: Final = conclude
        self._ledger: Final = ledger
        self._replays: Final = replays

    async def Conclude(self, request: pb.ConcludeRequest, context: Any) -> pb.ConcludeResponse:
        await _check_local(context)
        if not request.run:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "run must name a run")
        await self._conclude(request.run)
        found = self._ledger.select(run=request.run)
        return pb.ConcludeResponse(verdicts=[verdict_from_bytes(entry.message) for entry in found])

    async def RequestReplay(self, request: pb.RequestReplayRequest, context: Any) -> pb.RequestReplayResponse:
        await _check_local(context)
        try:
            return await self._replays.order(request)
        except NotAccepted as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
            raise


async def _check_local(context: Any) -> None:
    if not context.peer().startswith("unix:"):
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED, "control calls are answered on the agent's Unix socket only"
        )
