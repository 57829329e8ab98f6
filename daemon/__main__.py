"""The agent's entry: ``python -m scoutd.daemon``, the same as ``scoutd agent``.

argparse and nothing heavier, because a node service should be small and ready at once. A wrong configuration
or a refusal of this host is one line on stderr and exit code 2; a traceback here is a defect.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scoutd.daemon import log
from scoutd.daemon.errors import ScoutdError

FLAGS: Final = (
    ("--node", "agent.node", "NAME", "name of this node in verdicts (default: the host name)"),
    ("--bind", "agent.bind", "ADDRESS", "address of both ports (default auto: loopback, and peers apart)"),
    ("--port", "agent.port", "N", "gRPC port, 0 picks a free one"),
    ("--http-port", "agent.http_port", "N", "port of /metrics, /healthz and /readyz, 0 picks a free one"),
    ("--share", "agent.share", "I/N", "observe block I of N of this machine's ranks"),
    ("--advertise", "peers.advertise", "HOST[:PORT]", "where agents of other nodes reach this one"),
    ("--peers", "peers.addresses", "A,B,...", "agents to join through, beside those the job names"),
    ("--socket", "agent.socket", "PATH", "Unix socket for local clients"),
    ("--state-dir", "agent.state_dir", "DIR", "where verdicts survive a restart"),
    ("--log-level", "agent.log_level", "LEVEL", "debug, info, warning or error"),
    ("--log-format", "agent.log_format", "FORMAT", "auto, json or text"),
    ("--stall-timeout", "stall.timeout_s", "SECONDS", "silence that is an alarm (default 30)"),
    ("--root", "observe.root", "DIR", "where the shims write (default /dev/shm/scoutd)"),
)


def parser() -> argparse.ArgumentParser:
    """The flags; values are checked with the rest of the configuration, so errors read alike."""
    made = argparse.ArgumentParser(prog="scoutd agent", description="Watches the ranks of this node.")
    made.add_argument("--config", metavar="FILE", type=Path, help="configuration in TOML")
    made.add_argument("--run", metavar="TAG", default="", help="observe the jobs of this scoutd run only")
    for flag, path, metavar, text in FLAGS:
        made.add_argument(flag, dest=path, metavar=metavar, help=text)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The agent has run; 0 after a clean stop, 2 if it could not start."""
    parsed = vars(parser().parse_args(arguments))
    file, run = parsed.pop("config"), parsed.pop("run")
    try:
        return _serve(file, run, parsed)
    except ScoutdError as error:
        sys.stderr.write(f"scoutd: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _serve(file: Path | None, run: str, flags: dict[str, object]) -> int:
    # Imported late: --help and argument errors need none of the servers.
    from scoutd.daemon.lifecycle import Agent, Invocation

    invocation = Invocation(file=file, environ=dict(os.environ), flags=flags, run=run)
    config = invocation.load()
    log.configure(config.agent.log_level, config.agent.log_format)

    async def live() -> None:
        await Agent(invocation, config).run()

    asyncio.run(live())
    return 0


if __name__ == "__main__":
    sys.exit(main())
