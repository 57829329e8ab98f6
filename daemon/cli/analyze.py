"""``scoutd analyze``: the verdict on files that a job left behind, as a panel or as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from scoutd.agent.verdict import Verdict
from scoutd.daemon.clock import Stamps
from scoutd.daemon.codec import encode_verdict, to_json
from scoutd.proto.v1 import verdict_pb2 as pb


def analyze(path: Path, json: bool) -> None:
    """One verdict on standard output; what could not be used, on standard error.

    Raises:
        ConfigError: nothing at ``path`` can be read.
    """
    from scoutd.daemon import analyze as files

    verdict, trouble = files.analyze(path)
    for line in trouble:
        print(f"scoutd: {line}", file=sys.stderr)
    _print(_on_the_wire(verdict), json)


def _on_the_wire(verdict: Verdict) -> pb.Verdict:
    """Times of a verdict on files are wall-clock times already."""
    return encode_verdict(verdict, Stamps(monotonic=0, wall=0))


def _print(verdict: pb.Verdict, json: bool) -> None:
    if json:
        print(to_json(verdict))
        return
    from scoutd.daemon.cli.console import console
    from scoutd.daemon.cli.render import explanation

    console().print(explanation(verdict))
