"""Hears an agent's verdicts over its Unix socket, for as long as it takes.

The agent may not be there yet, may die and come back: ``follow`` reconnects until it is cancelled and yields
every verdict that is sent, repetitions included (``journal`` knows what is news). ``conclude`` is one bounded
call at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio

from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import query_pb2_grpc
from scoutd.proto.v1 import verdict_pb2 as pb

RETRY_S: Final = 0.2
STATUS_S: Final = 1.0
OPTIONS: Final = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 64 << 20),
]


class Agent:
    """A connection to the agent behind a socket; made once, reconnecting by itself."""

    def __init__(self, socket: Path, run: str) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own log is nothing for people
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=OPTIONS)
        self._run = run
        self._query: Any = query_pb2_grpc.QueryStub(self._channel)
        self._control: Any = query_pb2_grpc.ControlStub(self._channel)

    async def ready(self) -> None:
        """The agent answers."""
        await self._channel.channel_ready()

    async def follow(self) -> AsyncIterator[pb.Verdict]:
        """Every verdict of the run as the agent sends it; ends only by cancellation."""
        while True:
            try:
                call = self._query.WatchVerdicts(
                    query.WatchVerdictsRequest(run=self._run), wait_for_ready=True
                )
                async for verdict in call:
                    yield verdict
            except grpc.aio.AioRpcError:
                pass
            await asyncio.sleep(RETRY_S)

    async def status(self) -> query.GetStatusResponse | None:
        """The agent's status; None if it does not answer at once."""
        try:
            status: query.GetStatusResponse = await self._query.GetStatus(
                query.GetStatusRequest(), timeout=STATUS_S
            )
        except grpc.aio.AioRpcError:
            return None
        return status

    async def conclude(self, timeout_s: float) -> Sequence[pb.Verdict] | None:
        """The run's final verdicts; None if the agent did not answer in time."""
        try:
            response = await self._control.Conclude(
                query.ConcludeRequest(run=self._run), wait_for_ready=True, timeout=timeout_s
            )
        except grpc.aio.AioRpcError:
            return None
        verdicts: Sequence[pb.Verdict] = response.verdicts
        return verdicts

    async def close(self) -> None:
        await self._channel.close()
