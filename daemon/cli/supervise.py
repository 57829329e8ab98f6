"""``scoutd run``: one command, watched by one agent, to its end.

The command is started first and waits for nothing. Beside it run a private agent (or the node's, if there
is one and no option asks for another) and a task that hears verdicts. The run ends in one of three ways:

- The command exits. The agent is asked to conclude, what is new is shown, and the exit code is the command's;
  or 3 with ``--on-verdict stop``, if it failed and a verdict was confirmed.
- ``--on-verdict stop`` and a verdict is confirmed: one line says so, the whole tree is ended, exit code 3.
  A job that has ranks under other hosts' runs is given ``OTHERS_S`` first: their agents come to the same
  verdict a moment earlier or later, and what we end must not look dead to them before.
  Its panel comes last, below whatever the launcher prints about being ended. From then on nothing more is
  recorded, because the next deaths are our own doing. After a death the launcher gets ``SELF_EXIT_S`` to
  finish by itself: its own report of the failure is worth having.
- The user interrupts: the first signal is passed on, the second SIGINT or SIGTERM kills the tree.

Whatever happens to the agent, the command is unaffected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scoutd.daemon import runtime
from scoutd.daemon.cli import launch, sweep, tree
from scoutd.daemon.cli.journal import Journal
from scoutd.daemon.cli.listen import Listener
from scoutd.daemon.cli.options import RunOptions
from scoutd.daemon.cli.private_agent import PrivateAgent
from scoutd.daemon.cli.screen import Screen
from scoutd.daemon.cli.swarm import Swarm
from scoutd.daemon.errors import ScoutdError
from scoutd.proto.v1 import verdict_pb2 as pb

FAULT_CODE: Final = 3
DYING_S: Final = 3.0
"""A launcher that was told to end may leave before its ranks do."""

SELF_EXIT_S: Final = 3.0
OTHERS_S: Final = 2.0
"""How much later than ours the agents of other hosts may be; on busy machines it is half a second."""

FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    """One run. ``journal`` holds its verdicts afterwards."""

    def __init__(self, options: RunOptions, journal: Journal, screen: Screen) -> None:
        self.options: Final = options
        self.journal: Final = journal
        self.tag: Final = launch.new_tag()
        self._screen = screen
        self._child: launch.Child | None = None
        self._agent: PrivateAgent | Swarm | None = None
        self._condemned = asyncio.Event()
        self._killed = asyncio.Event()
        self._signals = 0
        self._deaf = False
        self._ended = False
        self._unshown: list[pb.Verdict] = []

    async def run(self) -> int:
        """The exit code of ``scoutd run``; no process and no file of the run is left."""
        with self._signals_handled():
            try:
                more = self.options.replay_environment(os.environ)
                self._child = await launch.start(self.options.command, self.tag, more)
            except launch.CannotStart as error:
                self._screen.say(str(error))
                return error.code
            self._agent = agent = await self._start_agent()
            listener = None
            try:
                listener = self._start_listener(agent)
                return await self._watch(self._child, listener)
            finally:
                await self._clean_up(agent, listener)

    async def _start_agent(self) -> PrivateAgent | Swarm | None:
        """None where the node's agent serves us, or where there can be no agent."""
        if not self.options.wants_private_agent and runtime.answers(runtime.node_socket()):
            return None
        agent: PrivateAgent | Swarm
        if self.options.nodes is not None:
            agent = Swarm(self.tag, self.options, self.options.nodes, self._screen.say)
        else:
            agent = PrivateAgent(self.tag, self.options, self._screen.say)
        try:
            await agent.start()
        except (OSError, ScoutdError) as error:
            self._screen.say(f"no agent, the job runs unobserved: {error}")
            await agent.stop()
            return None
        return agent

    def _start_listener(self, agent: PrivateAgent | Swarm | None) -> Listener | None:
        socket = agent.socket if agent is not None else runtime.node_socket()
        if agent is None and not runtime.answers(socket):
            return None
        listener = Listener(socket, self.tag, self._hear, self._screen.say)
        listener.start()
        return listener

    def _hear(self, verdict: pb.Verdict) -> None:
        """The verdict is recorded and shown if it is news and not our or the user's own doing."""
        if self._deaf or (self._signals and verdict.cause == pb.PROCESS_DEAD):
            return
        try:
            news = self.journal.hear(verdict)
        except OSError as error:
            self._screen.say(f"{self.options.verdicts}: {error.strerror}; verdicts are not written any more")
            news = True
        if not news:
            return
        if verdict.state == pb.CONFIRMED and self.options.stop and not self._ended:
            self._screen.say(f"{verdict.summary} (verdict {verdict.id})")
            self._unshown.append(verdict)
            self._condemned.set()
        else:
            self._screen.show(verdict)

    async def _watch(self, child: launch.Child, listener: Listener | None) -> int:
        exited = asyncio.create_task(child.exit_code())
        events = [asyncio.create_task(event.wait()) for event in (self._condemned, self._killed)]
        await asyncio.wait([exited, *events], return_when=asyncio.FIRST_COMPLETED)
        for task in events:
            task.cancel()
        if self._killed.is_set():
            await tree.kill(self.tag, child.pid)
            return await exited
        if self._condemned.is_set():
            await self._stop(child, exited)
            return FAULT_CODE
        code = await exited
        self._ended = True
        if listener is not None and not self._signals and not (self._agent and self._agent.given_up):
            others = [self._agent.conclude()] if isinstance(self._agent, Swarm) else []
            await asyncio.gather(listener.conclude(), *others)
        return FAULT_CODE if code and self.options.stop and self.journal.confirmed else code

    async def _stop(self, child: launch.Child, exited: asyncio.Task[int]) -> None:
        """The condemned job is gone."""
        verdict = self.journal.confirmed[-1]
        if verdict.cause == pb.PROCESS_DEAD:
            await asyncio.wait([exited], timeout=SELF_EXIT_S)
        elif sweep.spreads(self.tag):
            await asyncio.wait([exited], timeout=OTHERS_S)
        self._deaf = True
        if not exited.done():
            self._screen.say(f"ending the job because of verdict {verdict.id}")
        await tree.end(self.tag, child.pid)
        await exited
        for verdict in self._unshown:
            newest = self.journal.latest.get(verdict.id, verdict)
            self._screen.show(newest if newest.state == pb.CONFIRMED else verdict)

    async def _clean_up(self, agent: PrivateAgent | Swarm | None, listener: Listener | None) -> None:
        jobs = sweep.job_folders(self.tag)
        if listener is not None:
            await listener.close()
        if agent is not None:
            await agent.stop()
        if kept := await self._sweep(jobs):
            self._screen.say(f"{kept} ranks of this run still live; their files stay in {sweep.user_root()}")

    async def _sweep(self, jobs: set[Path]) -> int:
        """How many files stay, once the ranks that are still dying have had a moment."""
        deadline = time.monotonic() + DYING_S
        while (kept := sweep.sweep(self.tag, jobs)) and time.monotonic() < deadline:
            await asyncio.sleep(tree.POLL_S)
        return kept

    @contextlib.contextmanager
    def _signals_handled(self) -> Iterator[None]:
        """Signals that were ignored when we started (nohup) stay ignored, by the command too."""
        loop = asyncio.get_running_loop()
        handled = [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
        for number in handled:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _signalled(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1 and number != signal.SIGHUP:
            self._killed.set()
        elif self._child is not None:
            self._child.pass_on(number)
