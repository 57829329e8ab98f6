"""Reads the file that ``scoutd run --verdicts`` writes (``journal``): JSON lines, one per change of state."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import json_format

from scoutd.proto.v1 import verdict_pb2 as pb


def read_verdicts(path: Path) -> list[pb.Verdict]:
    """The newest line of every verdict in a file of ``scoutd run --verdicts``, oldest verdict first.

    Raises:
        OSError: the file cannot be read.
        json_format.ParseError: a line is no verdict.
    """
    newest: dict[str, pb.Verdict] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            verdict = json_format.Parse(line, pb.Verdict(), ignore_unknown_fields=True)
            newest[verdict.id] = verdict
    return list(newest.values())
