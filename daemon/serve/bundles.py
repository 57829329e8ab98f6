"""A verdict's bundle on request: the kept moment, the newest state of the verdict, the configuration."""

from __future__ import annotations

import platform

from scoutd.daemon.analyze.bundle import Bundle, pack
from scoutd.daemon.clock import Stamps
from scoutd.daemon.codec import to_json, verdict_from_bytes
from scoutd.daemon.config import Config
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.shelf import Kept
from scoutd.proto.v1 import verdict_pb2 as pb


def make(kept: Kept, ledger: Ledger, stamps: Stamps, config: Config, node: str, version: str) -> bytes:
    """The archive."""
    entry = ledger.get(kept.id)
    verdict = verdict_from_bytes(entry.message) if entry is not None else pb.Verdict(id=kept.id)
    about = {
        "node": node,
        "version": version,
        "python": platform.python_version(),
        "made_at": stamps.text(kept.decided_ns),
    }
    bundle = Bundle(kept.id, kept.moment, stamps.wall_ns(kept.decided_ns), about)
    return pack(bundle, to_json(verdict), config, "\n\n".join(map(_stack, verdict.stacks)))


def _stack(stack: pb.Stack) -> str:
    lines = [f"  {frame.function} ({frame.file}:{frame.line})" for frame in stack.frames]
    return "\n".join([f"rank {stack.rank}, innermost first", *(lines or [f"  none: {stack.refused}"])])
