"""Which of an agent's words are news, and the file they are written to.

A watcher hears every verdict again after a reconnection or an agent's restart, and a verdict whose content
grew (a stack arrived) without a change of state. News is a state that this verdict's id has not had before.
A restarted agent decides anew and may call a verdict OPEN that was confirmed already: that is no news
either.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Final

from scoutd.daemon.codec import to_json
from scoutd.proto.v1 import verdict_pb2 as pb

MAX_VERDICTS: Final = 4096
"""Ids remembered; a run with more has other troubles, and the oldest are forgotten."""


class Journal:
    """Everything heard of one run's verdicts. ``latest`` holds the newest content by id, oldest id first."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self.latest: dict[str, pb.Verdict] = {}
        self._states: dict[str, set[int]] = {}
        self._file = file

    def hear(self, verdict: pb.Verdict) -> bool:
        """True if this is news; then it is also in the file.

        Raises:
            OSError: the file cannot be written any more.
        """
        self.latest[verdict.id] = verdict
        states = self._states.setdefault(verdict.id, set())
        if verdict.state in states or (verdict.state == pb.OPEN and states):
            return False
        states.add(verdict.state)
        self._forget_oldest()
        if self._file is not None:
            self._file.write(to_json(verdict) + "\n")
            self._file.flush()
        return True

    @property
    def confirmed(self) -> list[pb.Verdict]:
        """Newest content of every verdict that was confirmed at any time, oldest first."""
        return [verdict for id_, verdict in self.latest.items() if pb.CONFIRMED in self._states[id_]]

    def _forget_oldest(self) -> None:
        while len(self._states) > MAX_VERDICTS:
            oldest = next(iter(self._states))
            del self._states[oldest]
            self.latest.pop(oldest, None)


def open_file(path: Path) -> IO[str]:
    """The file is empty and open. Raises OSError if it cannot be written."""
    return path.open("w", encoding="utf-8")
