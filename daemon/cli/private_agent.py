"""The private agent of one ``scoutd run``: started, restarted when it dies, stopped and cleaned up after.

The trainer never depends on it. An agent that cannot start at all (port in use, unusable directory: exit
code 2) is reported in one line and not tried again; one that dies later comes back after a delay that
doubles from 0.5 s to 30 s, at most ``MAX_RESTARTS`` times in a row. It runs in a session of its own, so
that Ctrl-C does not reach it, in the root directory, so that nothing in the user's folder shadows a module,
and it dies with us (``tether``). Its log goes to a file in a temporary directory, which also holds
its state unless ``--state-dir`` names another place; the directory is removed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scoutd.daemon import runtime
from scoutd.daemon.cli.options import RunOptions

REFUSED: Final = 2
"""Exit code of an agent whose configuration, port or directory is not usable."""

FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 30.0
MAX_RESTARTS: Final = 8
STABLE_S: Final = 60.0
"""An agent that lived this long has recovered: delays begin anew."""

STOP_S: Final = 4.0
"""The agent allows itself 2 s to close; twice that is a stuck one."""


@dataclass(frozen=True, slots=True)
class Seat:
    """An agent's place among the ``of`` agents of a run on this machine: its port, everybody's addresses
    (comma-separated) and the file of their common secret."""

    index: int
    of: int
    port: int
    peers: str
    key: Path

    @property
    def suffix(self) -> str:
        """Of the names of its socket and folder; the first has the names of an only agent."""
        return f"-{self.index}" if self.index else ""


class PrivateAgent:
    """An agent process that is kept alive until ``stop``. ``say`` gets one line for the user. ``seat``: None
    for an only agent."""

    def __init__(
        self, tag: str, options: RunOptions, say: Callable[[str], None], seat: Seat | None = None
    ) -> None:
        self.tag: Final = tag
        name = tag + (seat.suffix if seat is not None else "")
        self.socket: Final = runtime.run_socket(name)
        self._seat: Final = seat
        self._options = options
        self._say = say
        self._folder = Path(tempfile.gettempdir()) / f"scoutd-{name}"
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> None:
        """The first agent process runs, which does not mean that it is ready.

        Raises:
            OSError: it cannot be started.
            ScoutdError: the runtime directory is not usable.
        """
        runtime.ensure_directory()
        runtime.check_socket_path(self.socket)
        self._folder.mkdir(mode=0o700)
        self._process = await self._spawn()
        self._keeper = asyncio.create_task(self._keep())

    @property
    def given_up(self) -> bool:
        """No agent runs and none will."""
        return self._keeper is not None and self._keeper.done() and not self._stopping

    async def stop(self) -> None:
        """No agent process is left, nor anything it wrote, save in a ``--state-dir``."""
        self._stopping = True
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        if self._process is not None and self._process.returncode is None:
            await self._end(self._process)
        runtime.remove_endpoint(self.socket)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            process.send_signal(signal.SIGCONT)
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _keep(self) -> None:
        """Ends when the agent is given up."""
        failures = 0
        while self._process is not None:
            since = time.monotonic()
            code = await self._process.wait()
            failures = 1 if time.monotonic() - since > STABLE_S else failures + 1
            if code == REFUSED and failures == 1:
                self._say(f"no agent, the job runs unobserved: {self._last_words()}")
                return
            if failures > MAX_RESTARTS:
                self._say(
                    f"no agent, it died {failures} times, the job runs on unobserved: {self._last_words()}"
                )
                return
            await asyncio.sleep(min(FIRST_DELAY_S * 2 ** (failures - 1), LONGEST_DELAY_S))
            self._say(f"the agent died ({self._ending(code)}), starting it again; the job is not affected")
            self._process = await self._spawn()

    async def _spawn(self) -> asyncio.subprocess.Process:
        with open(self._folder / "agent.log", "ab") as log:
            return await asyncio.create_subprocess_exec(
                *agent_command(self.tag, self.socket, self._options, self._folder, self._seat),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_agent_environment(self._seat),
                start_new_session=True,
            )

    def _ending(self, code: int) -> str:
        """How it died; the log's last line tells nothing about a signal."""
        if code >= 0:
            return f"exit code {code}: {self._last_words()}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def _last_words(self) -> str:
        """The last line of the agent's log, without the name in front that every line of ours has."""
        try:
            lines = (self._folder / "agent.log").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        written = [line.strip() for line in lines if line.strip()]
        return written[-1].removeprefix("scoutd: ") if written else "it said nothing"


def agent_command(
    tag: str, socket: Path, options: RunOptions, folder: Path, seat: Seat | None = None
) -> list[str]:
    """The agent's command line; paths are absolute because it runs elsewhere."""
    command = [sys.executable, "-m", "scoutd.daemon.cli.tether", str(os.getpid()), str(folder)]
    command += ["--run", tag, "--socket", str(socket)]
    index = seat.index if seat is not None else 0
    http_port = options.http_port + index if options.http_port else 0
    state = options.state_dir / f"node-{index}" if options.state_dir and seat else options.state_dir
    command += ["--port", str(seat.port if seat else options.port or 0), "--http-port", str(http_port)]
    command += ["--state-dir", str((state or folder / "state").absolute())]
    if options.stall_timeout_s is not None:
        command += ["--stall-timeout", f"{options.stall_timeout_s:g}"]
    if options.config is not None:
        command += ["--config", str(options.config.absolute())]
    if seat is not None:
        command += ["--node", f"{options.node or 'node'}-{seat.index}", "--share", f"{seat.index}/{seat.of}"]
        command += ["--bind", "127.0.0.1", "--peers", seat.peers]
    elif options.node is not None:
        command += ["--node", options.node]
    return command


def _agent_environment(seat: Seat | None) -> dict[str, str]:
    """Ours, and not the trainer's: neither tag nor injection, else the agent would observe itself."""
    environ = dict(os.environ)
    environ.pop("SCOUTD_RUN", None)
    if seat is not None:
        environ["SCOUTD_PEERS_KEY_FILE"] = str(seat.key)
    return environ
