"""A verdict's parts in words that a tired person understands: what to do, who waits, where, since when."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from scoutd.daemon.cli import launch, ranges
from scoutd.proto.v1 import verdict_pb2 as pb

MAX_GROUPS: Final = 4
"""Groups of ranks with the same story that are told; beyond that, only who waits for whom is told."""

FRACTION: Final = re.compile(r"\.(\d+)")
INSTALLED: Final = re.compile(r".*/(site|dist)-packages/")
LIBRARY: Final = re.compile(r"(/(site|dist)-packages/|/lib(64)?/python3\.\d+/|^<frozen |\.so(\.|$))")

SHIM: Final = str(launch.PACKAGE / "shim") + "/"

Story = tuple[tuple[int, ...], str]
"""Whom a rank waits for, and the reason given for its acquittal."""

ACTIONS: Final = {
    pb.ACTION_UNSPECIFIED: "No action was decided.",
    pb.NONE: "Nothing to do.",
    pb.OBSERVE: "Nothing yet; keep an eye on it.",
    pb.RESTART_IN_PLACE: "Restart the job where it is, from its newest checkpoint. No machine is suspected.",
    pb.REPLACE_NODE: "Take {nodes} out of the job, replace it, restart from the newest checkpoint.",
    pb.DIAGNOSE_HARDWARE: "Test the hardware of {nodes} ({devices}) before it is used again.",
    pb.DIAGNOSE_NETWORK: "Test the network between the nodes of this group. No rank is to blame.",
    pb.FIX_PROGRAM: "Fix the program: the same would happen after a restart.",
}


def name(enum: Any, value: int) -> str:
    """The name of an enum's value; a number where the agent is newer than we are."""
    try:
        return str(enum.Name(value))
    except ValueError:
        return str(value)


def sentence(verdict: pb.Verdict) -> str:
    """The summary, and why the alarm is held back unless the summary says so already."""
    what = (
        verdict.summary
        or f"{name(pb.Cause, verdict.cause)} of {ranges.name(r.rank for r in verdict.implicated)}"
    )
    why = verdict.suppressed_because
    return f"{what} ({why})" if why and why not in what else what


def action(verdict: pb.Verdict) -> str:
    """One sentence: what to do now."""
    nodes = ", ".join(sorted({each.node for each in verdict.implicated if each.node})) or "the node"
    devices = ", ".join(sorted({each.device for each in verdict.implicated if each.device})) or "its devices"
    return ACTIONS.get(verdict.action, ACTIONS[pb.ACTION_UNSPECIFIED]).format(nodes=nodes, devices=devices)


def doing(phase: int, operation: str) -> str:
    """``FORWARD blocks.2 (Block)``; outside every boundary a rank is in the script's own code."""
    if phase == pb.BETWEEN:
        return f"the script's own code, {operation}".rstrip(", ")
    known = "" if phase == pb.PHASE_UNSPECIFIED else name(pb.Phase, phase)
    return f"{known} {operation}".strip()


def nobody(verdict: pb.Verdict) -> str:
    """Why no rank is named."""
    if verdict.status == pb.INCONCLUSIVE:
        return "nobody is named: the evidence does not single out a rank"
    return "nobody is named: all ranks agree, the fault lies between them"


def cleared(verdict: pb.Verdict, most: int = MAX_GROUPS) -> list[str]:
    """One line per group of acquitted ranks with the same story, largest group first.

    Args:
        most: With more groups than this, only who waits for whom is told.
    """
    groups = _grouped({each.rank: (tuple(each.waits_for), each.reason) for each in verdict.cleared})
    if len(groups) > most:
        groups = _grouped({each.rank: (tuple(each.waits_for), "") for each in verdict.cleared})
    return [_acquitted(ranks, *story) for story, ranks in groups]


def _grouped(stories: dict[int, Story]) -> list[tuple[Story, list[int]]]:
    found: dict[Story, list[int]] = defaultdict(list)
    for rank, story in stories.items():
        found[story].append(rank)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[1]))


def _acquitted(ranks: list[int], waits_for: tuple[int, ...], reason: str) -> str:
    who = ranges.name(ranks)
    if len(ranks) > 1:
        reason = re.sub(r"^makes ", "make ", reason)
    if not waits_for:
        return f"{who}: {reason or 'not involved'}"
    verb = "wait for" if len(ranks) > 1 else "waits for"
    where = reason.removeprefix("waits")
    link = "" if where != reason or not reason else ": "
    return f"{who} {verb} {ranges.name(waits_for)}{link}{where}"


def stack_of(verdict: pb.Verdict, rank: int) -> pb.Stack | None:
    return next((stack for stack in verdict.stacks if stack.rank == rank), None)


def own_frames(frames: Sequence[pb.Frame]) -> list[pb.Frame]:
    """The frames of the user's own code, innermost first; without any, the innermost Python frame, else the
    innermost one; empty without frames."""
    python = [frame for frame in frames if not frame.native]
    return [frame for frame in python if is_own(frame)] or python[:1] or list(frames[:1])


def is_own(frame: pb.Frame) -> bool:
    """The shim's own frames are none of the user's code either."""
    return not (frame.native or frame.file.startswith(SHIM) or LIBRARY.search(frame.file))


def place(frame: pb.Frame) -> str:
    """``train.py:42 in forward``; the file as seen from the working directory, if it lies below it."""
    line = f":{frame.line}" if frame.line else ""
    return f"{short_path(frame.file)}{line} in {frame.function}"


def short_path(text: str) -> str:
    """Files of installed packages begin with the package, those below the working directory are relative."""
    package = INSTALLED.search(text)
    if package is not None:
        return text[package.end() :]
    return text.removeprefix(os.getcwd().rstrip("/") + "/")


def fingerprints(verdict: pb.Verdict) -> list[str]:
    """What each side of a mismatch called, one line per side, the implicated ranks' first."""
    sides: dict[str, list[int]] = defaultdict(list)
    for item in verdict.evidence:
        if item.kind == "fingerprint" and item.HasField("rank"):
            sides[item.text].append(item.rank)
    guilty = {each.rank for each in verdict.implicated}
    ordered = sorted(sides.items(), key=lambda side: (not guilty & set(side[1]), side[1]))
    return [f"{ranges.name(ranks)}: {text}" for text, ranks in ordered]


def moment(text: str) -> datetime | None:
    """An RFC 3339 time in the local time zone; None for an empty or unreadable one."""
    try:
        exact = FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text)  # Python 3.10 reads no other
        return datetime.fromisoformat(exact.replace("Z", "+00:00")).astimezone()
    except ValueError:
        return None


def clock(when: datetime) -> str:
    """``14:03:22``, with the date if that is not today."""
    today = datetime.now(when.tzinfo).date() == when.date()
    return when.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def since(verdict: pb.Verdict) -> str:
    """``14:03:22, 5.3 s before this verdict``; empty where the onset is unknown."""
    onset = moment(verdict.onset_at)
    if onset is None:
        return ""
    end = moment(verdict.confirmed_at) or moment(verdict.opened_at)
    if end is None:
        return clock(onset)
    return f"{clock(onset)}, {duration((end - onset).total_seconds())} before this verdict"


def duration(seconds: float) -> str:
    """``5.3 s``, ``4 min 5 s``, ``2 h 3 min``."""
    if seconds < 60:
        return f"{max(seconds, 0.0):.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
