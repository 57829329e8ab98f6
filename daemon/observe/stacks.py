"""Captures stacks from outside with py-spy: works while the GIL is held, and needs nothing of the trainer.

Two kinds. Python-only, without stopping the process (20–50 ms). Native, with C frames, which pauses it for
about a second: one at a time. A stopped or dead process is not captured, and a missing permission is said
once and not asked for again for that process. Every capture ends within its time-out; py-spy is killed then.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from scoutd.agent.evidence import Frame, ProcessStatus, Stack
from scoutd.daemon.observe import frames
from scoutd.daemon.observe.processes import ProcessWatch

NATIVE_TIMEOUT_S: Final = 15.0
PYTHON_TIMEOUT_S: Final = 5.0
REAP_S: Final = 1.0
MAX_OUTPUT: Final = 8 << 20
MAX_SOURCE: Final = 4 << 20
NO_PERMISSION: Final = "no permission to trace: needs CAP_SYS_PTRACE or same user with ptrace_scope 0"
DENIED: Final = ("permission denied", "operation not permitted", "eperm")


class Traced(Protocol):
    """A process whose stack is wanted; ``stack``, with its stamp, is put here."""

    stack: tuple[Stack, int] | None

    @property
    def watch(self) -> ProcessWatch: ...


class StackCapture:
    """Runs py-spy and puts its stacks on the ranks. ``clock`` stamps them."""

    def __init__(self, clock: Callable[[], int], program: str | None = None) -> None:
        self._clock: Final = clock
        self._program: Final = program if program is not None else find_program()
        self._native = asyncio.Semaphore(1)
        self._quick = asyncio.Semaphore(2)
        self._denied: Final[set[tuple[int, int]]] = set()
        self._running: Final[set[asyncio.subprocess.Process]] = set()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._busy: Final[set[Traced]] = set()

    async def capture(self, observed: Traced, native: bool) -> None:
        """``observed.stack`` is a new stack, or one without frames whose ``refused`` says why."""
        reason = self._reason_not_to(observed)
        if reason:
            stack = Stack((), 0, native, None, reason)
        else:
            dump = await self._dump(observed, native)
            stack = self._stack(dump, native) if isinstance(dump, list) else Stack((), 0, native, None, dump)
        observed.stack = (stack, self._clock())

    def fingerprint_later(self, observed: Traced, then: Callable[[int], None]) -> None:
        """Calls ``then`` with a number that changes as the main thread's Python stack does. Nothing happens
        without a running loop, without permission, or while the last one is under way."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if observed in self._busy or self._reason_not_to(observed):
            return
        self._busy.add(observed)
        task = loop.create_task(self._fingerprint(observed, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """No capture is under way any more."""
        for task in list(self._tasks):
            task.cancel()
        for process in list(self._running):
            _kill(process)

    async def _fingerprint(self, observed: Traced, then: Callable[[int], None]) -> None:
        try:
            dump = await self._dump(observed, native=False)
        finally:
            self._busy.discard(observed)
        main = frames.main_thread(dump) if isinstance(dump, list) else None
        if main is not None:
            then(frames.shape_of(main))

    def _reason_not_to(self, observed: Traced) -> str:
        status = observed.watch.view(silent=True).status
        if status is ProcessStatus.GONE:
            return "the process is gone"
        if status is ProcessStatus.STOPPED:
            return "the process is stopped"
        if not observed.watch.visible:
            return "the process lives in another PID namespace"
        if not self._program:
            return "py-spy is not installed"
        if (observed.watch.pid, observed.watch.start_ticks) in self._denied:
            return NO_PERMISSION
        return ""

    async def _dump(self, observed: Traced, native: bool) -> list[dict[str, Any]] | str:
        """py-spy's threads, or in words why there are none."""
        pid = observed.watch.pid
        async with self._native if native else self._quick:
            code, out, err = await self._run(pid, native)
        if code == 0:
            try:
                return frames.parse(out)
            except ValueError as error:
                return f"py-spy's answer is unreadable: {error}"
        if any(word in err.lower() for word in DENIED):
            self._denied.add((pid, observed.watch.start_ticks))
            return NO_PERMISSION
        lines = err.strip().splitlines()
        return f"py-spy: {lines[-1][:200] if lines else f'exit code {code}'}"

    async def _run(self, pid: int, native: bool) -> tuple[int, str, str]:
        how = "--native" if native else "--nonblocking"
        limit = NATIVE_TIMEOUT_S if native else PYTHON_TIMEOUT_S
        try:
            process = await asyncio.create_subprocess_exec(
                str(self._program), "dump", how, "--json", "--pid", str(pid),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            return 1, "", error.strerror or str(error)
        self._running.add(process)
        try:
            out, err = await asyncio.wait_for(process.communicate(), limit)
        except asyncio.TimeoutError:  # a class of its own in Python 3.10
            _kill(process)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), REAP_S)
            return 1, "", f"no answer within {limit:g} s"
        finally:
            _kill(process)
            self._running.discard(process)
        return process.returncode or 0, _text(out), _text(err)

    def _stack(self, dump: list[dict[str, Any]], native: bool) -> Stack:
        main = frames.main_thread(dump)
        if main is None:
            return Stack((), 0, native, None, "py-spy found no main thread")
        found = frames.frames_of(main)
        waits = frames.waits(dump, native)
        if waits is None and not native and _sleeps(found):
            waits = False
        return Stack(found, 0, native, waits)


def find_program() -> str:
    """py-spy beside the interpreter, else on PATH, else empty."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy") or ""


def _sleeps(stack: tuple[Frame, ...]) -> bool:
    """The innermost frame stands on a line of its source that calls sleep()."""
    frame = frames.innermost_user(stack)
    return frame is not None and frames.SLEEPING_LINE.search(source_line(frame.file, frame.line)) is not None


def source_line(path: str, line: int) -> str:
    """A line of a regular file of reasonable size, empty where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE:
            return ""
        lines = os.read(fd, MAX_SOURCE).decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    finally:
        os.close(fd)
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


def _text(data: bytes) -> str:
    return data[:MAX_OUTPUT].decode("utf-8", "replace")
