"""The rich console of every command: colour on a terminal only, a sensible width in a pipe."""

from __future__ import annotations

import os
import sys
from typing import Final

from rich.console import Console

PIPED_WIDTH: Final = 100
"""Columns where there is no terminal and COLUMNS is not set: a log is read in a wide window."""


def console(stderr: bool = False) -> Console:
    """A console on standard output or error, as wide as its terminal, COLUMNS or ``PIPED_WIDTH``."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
