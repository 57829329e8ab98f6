"""The listening side of ``scoutd run``: tells that the agent is ready, hands on its words, asks for the last.

gRPC is imported when listening begins, after the command has been started.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scoutd.daemon import runtime
from scoutd.daemon.cli import sweep
from scoutd.proto.v1 import verdict_pb2 as pb

if TYPE_CHECKING:
    from scoutd.daemon.cli.follow import Agent

CONCLUDE_S: Final = 3.0
READY_S: Final = 15.0
"""An agent is ready in about a second; after this long the user is told that it is not."""

LOOK_S: Final = 5.0
MAX_FACTS: Final = 64
"""Different things the user is told about; whoever needs more asks for the status."""

ENDPOINT_POLL_S: Final = 0.05


def is_private(socket: Path) -> bool:
    """A node agent also tells about processes of other runs, which are none of our business."""
    return socket != runtime.node_socket()


class Listener:
    """Calls ``hear`` for every verdict sent and ``say`` for what the user should know about the agent."""

    def __init__(
        self, socket: Path, run: str, hear: Callable[[pb.Verdict], None], say: Callable[[str], None]
    ) -> None:
        self._socket = socket
        self._run = run
        self._hear = hear
        self._say = say
        self._tasks: list[asyncio.Task[None]] = []
        self._agent: Agent | None = None
        self._was_ready = False
        self._said: set[str] = set()

    def start(self) -> None:
        """Verdicts are handed on from now until ``close``."""
        from scoutd.daemon.cli.follow import Agent

        self._agent = Agent(self._socket, self._run)
        self._tasks = [
            asyncio.create_task(self._follow(self._agent)),
            asyncio.create_task(self._greet(self._agent)),
        ]

    async def _follow(self, agent: Agent) -> None:
        async for verdict in agent.follow():
            self._hear(verdict)

    async def _greet(self, agent: Agent) -> None:
        """The user knows that the job is watched and where to look, or that it is not watched yet."""
        try:
            endpoint = await asyncio.wait_for(self._endpoint(), READY_S)
        except asyncio.TimeoutError:
            self._say(f"the agent is not ready after {READY_S:g} s; the job runs on, unobserved so far")
            endpoint = await self._endpoint()
        self._was_ready = True
        metrics = f"http://127.0.0.1:{endpoint.http_port}/metrics"
        self._say(f"watching (node {endpoint.node}, status: scoutd status, metrics: {metrics})")
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look(agent)

    async def _look(self, agent: Agent) -> None:
        """The user knows what the agent cannot see, each fact once."""
        status = await agent.status() if is_private(self._socket) else None
        if status is None:
            return
        facts = [
            f"rank {each.rank} (pid {each.pid}) is not observed: {each.reason}" for each in status.unobserved
        ]
        for fact in [*facts, *status.warnings]:
            if fact not in self._said and len(self._said) < MAX_FACTS:
                self._said.add(fact)
                self._say(fact)

    async def _endpoint(self) -> runtime.Endpoint:
        while (endpoint := runtime.read_endpoint(self._socket)) is None:
            await asyncio.sleep(ENDPOINT_POLL_S)
        return endpoint

    async def conclude(self) -> None:
        """The agent's last word is handed on, if it has one within ``CONCLUDE_S``.

        An agent that never was ready is waited for only if some rank has left a file that it could judge.
        """
        if self._agent is None or not (self._was_ready or sweep.files(self._run)):
            return
        if self._was_ready:
            await self._look(self._agent)
        verdicts = await self._agent.conclude(CONCLUDE_S)
        if verdicts is None:
            self._say("the agent did not answer at the end of the job; its last verdicts may be missing")
        for verdict in verdicts or ():
            self._hear(verdict)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self._say(f"listening to the agent failed: {type(result).__name__}: {result}")
        if self._agent is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._agent.close(), 1.0)
