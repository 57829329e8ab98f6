"""The ``on_verdict`` hook: a user's command that gets each change of a verdict as JSON on its input.

One at a time and in order, because a script that pages people expects OPEN before CONFIRMED. Bounded in every
way: queue, running time (then its whole process group is killed), output kept. What it cannot take is dropped
and counted; nothing that it does reaches the main loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from scoutd.daemon.log import logger

QUEUE_LENGTH: Final = 64
OUTPUT_KEPT: Final = 4096


def _ignore() -> None:
    """Nobody wants to know."""


class VerdictHook:
    """``runs``, ``failures`` and ``dropped`` count since the start; an empty command does nothing."""

    def __init__(self, command: str, timeout_s: float, on_failure: Callable[[], None] = _ignore) -> None:
        self.command = command
        self.timeout_s = timeout_s
        self.runs = 0
        self.failures = 0
        self.dropped = 0
        self._on_failure: Final = on_failure
        self._waiting: Final[list[str]] = []
        self._worker: asyncio.Task[None] | None = None

    def offer(self, verdict_json: str) -> None:
        """The command will run with this verdict, unless too many wait already."""
        if not self.command:
            return
        if len(self._waiting) >= QUEUE_LENGTH:
            self.dropped += 1
            return
        self._waiting.append(verdict_json)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def drain(self, timeout_s: float) -> None:
        """What waits has run, or the time is over and the rest was dropped."""
        if self._worker is None or self._worker.done():
            return
        _, unfinished = await asyncio.wait([self._worker], timeout=timeout_s)
        if unfinished:
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._worker.cancel()
            await asyncio.wait([self._worker], timeout=1.0)

    async def _work(self) -> None:
        while self._waiting:
            problem = await self._run(self._waiting.pop(0))
            self.runs += 1
            if problem:
                self.failures += 1
                self._on_failure()
                logger().warning("on_verdict hook failed", reason=problem)

    async def _run(self, text: str) -> str:
        """Why the command failed, empty if it did not."""
        try:
            process = await asyncio.create_subprocess_shell(
                self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot start: {error.strerror}"
        try:
            output = await asyncio.wait_for(_converse(process, text.encode() + b"\n"), self.timeout_s)
        except asyncio.TimeoutError:
            return f"no end after {self.timeout_s:g} s"
        finally:
            await _kill_group(process)
        if process.returncode:
            return f"exit code {process.returncode}: {output.decode(errors='replace').strip()}"
        return ""


async def _converse(process: asyncio.subprocess.Process, text: bytes) -> bytes:
    """Writes the input, reads errors to their end (keeping the first bytes), waits for the exit."""
    assert process.stdin is not None
    assert process.stderr is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(text)
        await process.stdin.drain()
    process.stdin.close()
    kept = b""
    while chunk := await process.stderr.read(OUTPUT_KEPT):
        kept += chunk[: OUTPUT_KEPT - len(kept)]
    await process.wait()
    return kept


async def _kill_group(process: asyncio.subprocess.Process) -> None:
    """Nothing of a command that did not end in time runs on; the kill is awaited, so that it is reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
