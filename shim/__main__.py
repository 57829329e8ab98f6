"""``python -m scoutd.shim script.py args`` and ``python -m scoutd.shim -m module args``.

Runs the script as Python would, with the shim armed in this process and, through PYTHONPATH, in the
processes it starts.
"""

from __future__ import annotations

import os
import runpy
import sys

from scoutd.shim import arming

USAGE = "usage: python -m scoutd.shim [-m MODULE | SCRIPT] [ARGS ...]"


def main() -> None:
    """The script has run; its exceptions and exit code are its own."""
    args = sys.argv[1:]
    if not args or args == ["-m"]:
        raise SystemExit(USAGE)
    _arm_children()
    arming.arm()
    if args[0] == "-m":
        sys.argv = args[1:]
        runpy.run_module(args[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        sys.path[0] = os.path.dirname(os.path.abspath(args[0]))
        runpy.run_path(args[0], run_name="__main__")


def _arm_children() -> None:
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *paths])


if __name__ == "__main__":
    main()
