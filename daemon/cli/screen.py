"""What ``scoutd run`` says to the person at the terminal: single lines and verdict panels, on standard error.

Standard output belongs to the job. rich is imported when the first panel is drawn, not before: most runs
never need it.
"""

from __future__ import annotations

import sys

from scoutd.daemon.cli.words import sentence
from scoutd.proto.v1 import verdict_pb2 as pb


class Screen:
    """``explain``: how to read more about a verdict, as a command with ``{id}`` in it; empty for no such
    way."""

    def __init__(self, explain: str = "") -> None:
        self._explain = explain

    def say(self, line: str) -> None:
        """One line with our name in front. A closed terminal is no reason to fail."""
        try:
            print(f"scoutd: {line}", file=sys.stderr, flush=True)
        except OSError:
            pass

    def show(self, verdict: pb.Verdict) -> None:
        """A panel for a confirmed verdict, one line for any other state worth a line."""
        if verdict.state == pb.CONFIRMED:
            self._draw(verdict)
        elif line := notice(verdict):
            self.say(line)

    def _draw(self, verdict: pb.Verdict) -> None:
        from scoutd.daemon.cli.console import console
        from scoutd.daemon.cli.render import panel

        try:
            console(stderr=True).print(panel(verdict, self._explain.format(id=verdict.id)))
        except OSError:
            pass


def notice(verdict: pb.Verdict) -> str:
    """One line for a verdict that is not confirmed; empty for one that has only been opened."""
    if verdict.state == pb.SUPPRESSED:
        return f"no alarm: {sentence(verdict)}"
    if verdict.state == pb.OPEN and verdict.suppressed_because:
        return f"alarm held back: {sentence(verdict)}"
    if verdict.state == pb.RESOLVED:
        return f"resolved: {sentence(verdict)} (verdict {verdict.id})"
    return ""
