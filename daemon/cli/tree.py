"""The processes of one run, and their end.

A launcher starts its ranks in sessions of their own, and when it is killed they are adopted by init:
neither the process group nor the parent chain finds all of them. The tag in their environment does, so a
member of the run is a descendant of the command, or a process of this user that carries
``SCOUTD_RUN=<tag>``.

The end is SIGTERM to everyone, SIGCONT to the stopped ones (a stopped process does not act on SIGTERM), ten
seconds of grace, then SIGKILL: a rank that hangs in native code never runs its Python signal handlers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable
from typing import Final

import psutil

GRACE_S: Final = 10.0
KILL_WAIT_S: Final = 3.0
POLL_S: Final = 0.05


def members(tag: str, child_pid: int) -> set[psutil.Process]:
    """Every living process of the run, zombies left out; never this process."""
    found = {process for process in psutil.process_iter() if _carries(process, tag)}
    with contextlib.suppress(psutil.Error):
        child = psutil.Process(child_pid)
        found |= {child, *child.children(recursive=True)}
    return {process for process in found if process.pid != os.getpid() and is_alive(process)}


def _carries(process: psutil.Process, tag: str) -> bool:
    """Reading another user's environment is refused, which means: not ours."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return f"SCOUTD_RUN={tag}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def end(tag: str, child_pid: int, grace_s: float = GRACE_S) -> None:
    """No process of the run is left, save one that the kernel itself cannot kill."""
    known = members(tag, child_pid)
    ask(known)
    deadline = time.monotonic() + grace_s
    while known and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
        known = {process for process in known if is_alive(process)}
    await kill(tag, child_pid, known)


async def kill(tag: str, child_pid: int, known: Iterable[psutil.Process] = ()) -> None:
    """Everything that is left of the run got SIGKILL, members born meanwhile included."""
    deadline = time.monotonic() + KILL_WAIT_S
    known = set(known)
    while time.monotonic() < deadline:
        known = {process for process in known | members(tag, child_pid) if is_alive(process)}
        if not known:
            return
        for process in known:
            with contextlib.suppress(psutil.Error):
                process.kill()
        await asyncio.sleep(POLL_S)


def ask(processes: Iterable[psutil.Process]) -> None:
    """Every process got SIGTERM and can act on it."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
            if process.status() == psutil.STATUS_STOPPED:
                process.resume()
