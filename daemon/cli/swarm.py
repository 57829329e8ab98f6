"""``scoutd run --nodes N``: N agents on this machine, each with a share of its ranks, as if on N nodes.

They are told each other's ports and a secret of this run, so they are one cluster before the job has a store.
The first is the one that the run listens to; at the end all of them conclude together.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from scoutd.daemon.cli.listen import CONCLUDE_S
from scoutd.daemon.cli.options import RunOptions
from scoutd.daemon.cli.private_agent import PrivateAgent, Seat

LOOPBACK: Final = "127.0.0.1"


class Swarm:
    """The agents of a run; to the run it is one agent, ``socket`` being that of the first."""

    def __init__(self, tag: str, options: RunOptions, count: int, say: Callable[[str], None]) -> None:
        self._tag: Final = tag
        self._folder: Final = Path(tempfile.mkdtemp(prefix=f"scoutd-{tag}-"))
        key = self._folder / "key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_hex(32))
        ports = [options.port + i for i in range(count)] if options.port else free_ports(count)
        peers = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        self._agents: Final = [
            PrivateAgent(tag, options, say, Seat(index, count, port, peers, key))
            for index, port in enumerate(ports)
        ]

    @property
    def socket(self) -> Path:
        return self._agents[0].socket

    @property
    def given_up(self) -> bool:
        return self._agents[0].given_up

    async def start(self) -> None:
        """All run. Raises OSError or ScoutdError if one of them cannot be started."""
        for agent in self._agents:
            await agent.start()

    async def conclude(self) -> None:
        """Every agent but the first has said its last word; the run itself asks the first."""
        from scoutd.daemon.cli.follow import Agent

        others = [Agent(agent.socket, self._tag) for agent in self._agents[1:] if not agent.given_up]
        await asyncio.gather(*(agent.conclude(CONCLUDE_S) for agent in others))
        await asyncio.gather(*(agent.close() for agent in others))

    async def stop(self) -> None:
        await asyncio.gather(*(agent.stop() for agent in self._agents))
        shutil.rmtree(self._folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; an agent that finds its own taken says so."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
