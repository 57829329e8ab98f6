"""How an agent comes up, reloads and goes down.

    STARTING   configuration valid → state open → addresses bound → shared memory scanned once
    READY      health SERVING, endpoint file written, systemd told; rounds follow each other
    RELOADING  SIGHUP: the new configuration is taken whole, or the old one is kept and the reason logged
    STOPPING   SIGTERM, SIGINT: health NOT_SERVING, cores concluded, watchers and hook flushed, all closed

Invariant: health says SERVING only between the end of STARTING and the beginning of STOPPING. Everything that
STARTING opened is closed in the reverse order, however far it got. STOPPING is bounded by ``GRACE_S``.

What a reload changes: limits of silence, pace, log, hook. Addresses, node, root and state directory need a
restart; a reload that would change them says so.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Final

from scoutd.daemon import configsource, garbage, log, runtime
from scoutd.daemon.clock import Stamps, monotonic_ns
from scoutd.daemon.config import AUTO, Config
from scoutd.daemon.errors import ConfigError, LocalError
from scoutd.daemon.hooks import VerdictHook
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.loop import Loop
from scoutd.daemon.observe.observer import Observer
from scoutd.daemon.observe.share import Share, parse_share
from scoutd.daemon.peer.neighbours import Neighbours
from scoutd.daemon.peer.plan import peer_plan
from scoutd.daemon.reporter import Reporter
from scoutd.daemon.sdnotify import Notifier
from scoutd.daemon.serve.control import ControlService
from scoutd.daemon.serve.grpc_server import GrpcServer
from scoutd.daemon.serve.http import HttpServer
from scoutd.daemon.serve.layout import part_for_others
from scoutd.daemon.serve.metrics import Metrics
from scoutd.daemon.serve.query import QueryService, View
from scoutd.daemon.serve.replay_requests import ReplayRequests
from scoutd.daemon.store import Store
from scoutd.daemon.watchers import Watchers

GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Invocation:
    """Where the configuration comes from, kept for reloads. ``run``: the tag of the ``scoutd run`` whose
    jobs alone are observed, empty for a node agent."""

    file: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, object] = field(default_factory=dict)
    run: str = ""

    def load(self) -> Config:
        """The configuration as the sources are now.

        A private agent lives beside the node agent on the same configuration: it takes addresses from flags
        only, and free ports and a socket of its own otherwise.
        """
        config = configsource.load(self.file, self.environ, self.flags)
        if not self.run:
            return config
        agent = config.agent
        return replace(
            config,
            agent=replace(
                agent,
                port=agent.port if self._given("agent.port") else 0,
                http_port=agent.http_port if self._given("agent.http_port") else 0,
                socket=agent.socket if self._given("agent.socket") else str(runtime.run_socket(self.run)),
            ),
        )

    def _given(self, flag: str) -> bool:
        return self.flags.get(flag) is not None


class Agent:
    """One agent process, from its configuration to its end."""

    def __init__(self, invocation: Invocation, config: Config) -> None:
        self.invocation: Final = invocation
        self.config = config
        self.node: Final = config.agent.node or socket.gethostname()
        self.socket: Final = Path(config.agent.socket or runtime.node_socket())
        self.ready = False
        self._started_ns: Final = monotonic_ns()
        self._stop: Final = asyncio.Event()
        self._notifier: Final = Notifier(invocation.environ)
        self._version: Final = metadata.version("scoutd")
        self._incarnation = 1

    async def run(self) -> None:
        """The agent has lived and stopped.

        Raises:
            ConfigError, LocalError: it could not start; nothing is left behind.
        """
        async with AsyncExitStack() as stack:
            store, warning = self._open_store()
            ledger = Ledger(store, warning)
            stack.callback(ledger.close)
            self._build(ledger)
            stack.push_async_callback(self._loop.close)
            await self._bind(stack)
            self._loop.round()
            await self._become_ready(stack)
            garbage.settle()
            await self._loop.run(self._stop)
            await self._shut_down()

    def _layout(self, job: str) -> bytes:
        """What is seen here of a job's layout, for its other agents."""
        found = self._loop.jobs.get(job)
        return part_for_others(found) if found is not None else b""

    def _replay_requests(self) -> ReplayRequests:
        """Requests of this node's users, and those that other agents of a job pass on."""
        requests = ReplayRequests(
            jobs=self._loop.jobs.values,
            tell=self._observer.request_replay,
            spread=self._neighbours.order,
            clock=monotonic_ns,
        )
        self._neighbours.carry_out(requests.carry_out)
        return requests

    def _open_store(self) -> tuple[Store | None, str]:
        """A store, or none and why. A directory that was asked for must work; a default one may not."""
        asked = self.config.agent.state_dir
        if not asked and self.invocation.run:
            return None, ""
        try:
            store = Store(Path(asked) if asked else default_state_directory(self.invocation.environ))
        except LocalError as error:
            if asked:
                raise
            return None, f"verdicts are kept in memory only: {error}"
        self._incarnation = store.next_incarnation(self.node)
        return store, ""

    def _build(self, ledger: Ledger) -> None:
        """The parts, wired, nothing bound yet."""
        stamps = Stamps()
        config = self.config
        self._watchers = Watchers()
        self._metrics = Metrics(
            lambda: self._loop.jobs.values(), monotonic_ns, self._version, platform.python_version()
        )
        self._hook = VerdictHook(
            config.hooks.on_verdict, config.hooks.timeout_s, lambda: self._metrics.count_error("hook")
        )
        self._metrics.watch_losses("watchers", lambda: self._watchers.dropped)
        self._metrics.watch_losses("hook", lambda: self._hook.dropped)
        self._metrics.watch_losses("store", lambda: ledger.dropped)
        observer = Observer(
            Path(config.observe.root),
            self.node,
            self.invocation.run or None,
            monotonic_ns,
            self._incarnation,
            share=_share(config.agent.share),
        )
        self._observer = observer
        self._neighbours = Neighbours(
            peer_plan(config.peers, config.agent.port),
            self.node,
            self._incarnation,
            self._metrics.traffic,
            monotonic_ns,
            lambda: self._loop.wake(),
            lambda error: self._loop.failed_peer(error),
            self._addressed,
        )
        self._metrics.peer_states = self._neighbours.states
        reporter = Reporter(ledger, self._watchers, self._metrics, self._hook, stamps)
        self._loop = Loop(
            observer,
            lambda job: self._neighbours.admit(job, self.config.settings(), self.config.exchange_settings()),
            reporter,
            self._notifier,
            monotonic_ns,
            config.observe,
            self._neighbours,
        )
        self._loop.eager = bool(self.invocation.run)
        view = View(
            node=self.node,
            version=self._version,
            started_ns=self._started_ns,
            stamps=stamps,
            clock=monotonic_ns,
            stall_timeout_s=lambda: self.config.stall.timeout_s,
            jobs=self._loop.jobs.values,
            unobserved=lambda: observer.unobserved,
            warnings=self._warnings,
            ledger=ledger,
            watchers=self._watchers,
            members=self._neighbours.members,
            layouts=self._neighbours.layouts,
            shelf=self._loop.shelf,
            config=lambda: self.config,
        )
        self._neighbours.show_layout(self._layout)
        self._ledger = ledger
        self._grpc = GrpcServer(
            QueryService(view),
            ControlService(self._loop.conclude, ledger, self._replay_requests()),
            self._neighbours.service,
        )
        self._http = HttpServer(self._metrics, lambda: self.ready)

    async def _bind(self, stack: AsyncExitStack) -> None:
        agent = self.config.agent
        if self.socket.parent == runtime.runtime_directory():
            runtime.ensure_directory()
        bind = self.config.private_bind
        alone = agent.bind == AUTO
        await self._grpc.start(bind, agent.port, self.socket, None if alone else self._neighbours.credentials)
        stack.callback(runtime.remove_endpoint, self.socket)
        stack.push_async_callback(self._grpc.stop, GRACE_S / 4)
        await self._http.start(bind, agent.http_port)
        stack.callback(self._http.stop)
        stack.push_async_callback(self._neighbours.close)
        self._neighbours.open("" if alone else bind, self._grpc.port)

    async def _become_ready(self, stack: AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        runtime.write_endpoint(
            runtime.Endpoint(
                socket=self.socket,
                pid=os.getpid(),
                port=self._grpc.port,
                http_port=self._http.port,
                node=self.node,
                run=self.invocation.run,
            )
        )
        self.ready = True
        await self._grpc.serving(True)
        self._notifier.ready(f"watching {len(self._loop.jobs)} jobs")
        log.logger().info(
            "ready",
            node=self.node,
            port=self._grpc.port,
            http_port=self._http.port,
            socket=str(self.socket),
            jobs=len(self._loop.jobs),
            after_s=round((monotonic_ns() - self._started_ns) / 1e9, 3),
        )
        for warning in self._warnings():
            log.logger().warning("degraded", reason=warning)

    def stop(self) -> None:
        """The agent begins to stop."""
        self._stop.set()
        self._loop.wake()

    def reload(self) -> None:
        """The new configuration is in force, or the old one still is and the log says why."""
        self._notifier.reloading()
        try:
            new = self.invocation.load()
        except ConfigError as error:
            log.logger().error("configuration not reloaded, the old one stays", reason=str(error))
        else:
            self._adopt(new)
        self._notifier.ready("configuration reloaded")

    def _adopt(self, new: Config) -> None:
        fixed = [
            name
            for name in ("node", "bind", "port", "http_port", "socket", "state_dir", "share")
            if getattr(new.agent, name) != getattr(self.config.agent, name)
        ]
        if new.peers != self.config.peers:
            fixed.append("peers")
        if fixed:
            log.logger().warning("needs a restart to take effect", keys=fixed)
        self.config = new
        log.configure(new.agent.log_level, new.agent.log_format)
        self._loop.observe = new.observe
        self._hook.command, self._hook.timeout_s = new.hooks.on_verdict, new.hooks.timeout_s
        for job in self._loop.jobs.values():
            job.core.apply(new.settings())
        log.logger().info("configuration reloaded")

    async def _shut_down(self) -> None:
        """Everything known is decided, told and written."""
        self.ready = False
        self._notifier.stopping()
        await self._grpc.serving(False)
        self._loop.round()
        self._loop.conclude_now()
        self._watchers.close()
        await self._hook.drain(GRACE_S / 2)
        log.logger().info("stopped", rounds=self._loop.rounds)

    def _addressed(self, address: str) -> None:
        """The shims of this node may tell other agents where this one is."""
        self._observer.address = address

    def _warnings(self) -> list[str]:
        """Every way in which this agent is degraded, in words."""
        warnings = [self._ledger.warning, *self._loop.observer.warnings, *self._neighbours.warnings()]
        for job in self._loop.jobs.values():
            warnings += job.observation.warnings
        return list(dict.fromkeys(filter(None, warnings)))


def _share(text: str) -> Share | None:
    share = parse_share(text)
    if text and share is None:
        raise ConfigError(f"agent.share = {text!r} is not accepted: it takes I/N, for example 0/4")
    return share


def default_state_directory(environ: Mapping[str, str]) -> Path:
    """Where state lives if nothing is configured: the system's place for root, else the user's."""
    if os.geteuid() == 0:
        return Path("/var/lib/scoutd")
    base = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "scoutd"
