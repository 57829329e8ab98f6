"""The command under ``scoutd run``: its environment, its process group, its exit code.

The whole tree below the command carries ``SCOUTD_RUN``, a random tag, and a PYTHONPATH that begins with the
folder of the injection. Nothing else about the command is changed: input, output and working directory are
inherited.

Process group. Behind a terminal the command stays in our own group, so that reading the keyboard, Ctrl-C
and Ctrl-Z do what they do without scoutd; the terminal delivers Ctrl-C to both of us. Elsewhere it leads a
session and group of its own, and signals that reach us are passed on to all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2]
"""The folder of ``scoutd``: a checkout or an installed package, laid out alike."""

INJECTION: Final = PACKAGE / "shim" / "inject"
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126


class CannotStart(Exception):
    """The command did not start; ``code`` is what a shell would exit with."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def new_tag() -> str:
    """Eight random hexadecimal digits that name one ``scoutd run``."""
    return secrets.token_hex(4)


def environment(tag: str, base: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """``base`` with the tag, the injection and ``more``; the user's own PYTHONPATH follows behind it."""
    own = [part for part in base.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(INJECTION)]
    path = os.pathsep.join([str(INJECTION), *own])
    return {**base, **(more or {}), "SCOUTD_RUN": tag, "PYTHONPATH": path}


def behind_terminal() -> bool:
    """True if our standard input is a terminal and we are its foreground group."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


@dataclass(frozen=True)
class Child:
    """The started command. ``grouped``: it leads a session and process group of its own."""

    process: asyncio.subprocess.Process
    grouped: bool

    @property
    def pid(self) -> int:
        return self.process.pid

    async def exit_code(self) -> int:
        """What a shell would say: the code, or 128 + the number of the signal that ended it."""
        code = await self.process.wait()
        return code if code >= 0 else 128 - code

    def pass_on(self, number: int) -> None:
        """The command received the signal, unless the terminal has delivered it already."""
        if not self.grouped and number == signal.SIGINT:
            return
        with contextlib.suppress(ProcessLookupError):
            if self.grouped:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)


async def start(command: tuple[str, ...], tag: str, more: Mapping[str, str] | None = None) -> Child:
    """The command runs, with ``more`` in its environment.

    Raises:
        CannotStart: there is no such command, or it may not be executed.
    """
    grouped = not behind_terminal()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment(tag, os.environ, more), start_new_session=grouped
        )
    except FileNotFoundError as error:
        raise CannotStart(NOT_FOUND, _missing(command[0], error)) from error
    except OSError as error:
        raise CannotStart(NOT_EXECUTABLE, f"cannot execute {command[0]}: {error.strerror}") from error
    except ValueError as error:
        raise CannotStart(NOT_EXECUTABLE, f"cannot execute {command[0]!r}: {error}") from error
    return Child(process, grouped)


def _missing(name: str, error: FileNotFoundError) -> str:
    """A script whose interpreter is missing gives the same error as a command that is missing."""
    if os.sep in name and os.path.exists(name):
        return f"cannot execute {name}: its interpreter does not exist"
    return f"command not found: {name}" if error.filename in (None, name) else str(error)
