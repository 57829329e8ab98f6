"""The command line, ``scoutd``.

``scoutd agent`` is the agent itself and must stay small, so it is dispatched before the frameworks that the
other commands use (typer, rich, both slow to import) are touched.
"""

from __future__ import annotations

import sys


def main() -> int:
    """The process's exit code after the command named on the command line has run."""
    if sys.argv[1:2] == ["agent"]:
        from scoutd.daemon.__main__ import main as agent

        return agent(sys.argv[2:]) or 0
    from scoutd.daemon.cli.app import run_app

    return run_app(sys.argv[1:])
