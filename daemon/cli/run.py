"""``scoutd run`` from options to exit code: checks what can be checked before anything is started."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from scoutd.daemon import configsource
from scoutd.daemon.cli.journal import Journal, open_file
from scoutd.daemon.cli.options import RunOptions
from scoutd.daemon.cli.screen import Screen
from scoutd.daemon.cli.supervise import Supervisor
from scoutd.daemon.errors import ConfigError
from scoutd.proto.v1 import verdict_pb2 as pb


@dataclass(frozen=True)
class Outcome:
    """``confirmed``: every verdict that was confirmed during the run, oldest first."""

    code: int
    confirmed: Sequence[pb.Verdict]


def run_command(options: RunOptions) -> Outcome:
    """The command has run to its end under an agent's eyes.

    Raises:
        ConfigError: an option or the configuration is not acceptable; nothing was started.
    """
    configsource.load(options.config, os.environ, options.flags())
    with ExitStack() as stack:
        file = None
        if options.verdicts is not None:
            try:
                file = stack.enter_context(open_file(options.verdicts))
            except OSError as error:
                raise ConfigError(f"--verdicts {options.verdicts}: cannot write: {error.strerror}") from error
        journal = Journal(file)
        supervisor_screen = Screen(_explain(options))
        code = asyncio.run(_supervise(options, journal, supervisor_screen))
    return Outcome(code, journal.confirmed)


async def _supervise(options: RunOptions, journal: Journal, screen: Screen) -> int:
    """The events of a Supervisor belong to the loop that runs it (Python 3.10)."""
    return await Supervisor(options, journal, screen).run()


def _explain(options: RunOptions) -> str:
    """How to read more later. A private agent ends with the job, a file of verdicts stays."""
    if options.verdicts is not None:
        return f"scoutd explain --file {shlex.quote(str(options.verdicts))} {{id}}"
    return "" if options.stop else "scoutd explain {id}"
