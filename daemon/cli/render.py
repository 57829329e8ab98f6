"""Verdicts as panels. Pure: from a ``scoutd.v1.Verdict`` to a rich renderable.

``panel`` is what a person reads at three in the morning: one sentence, then who, doing what, where in the
code, since when, who only waited, and what to do. ``explanation`` is the whole argument behind it. Neither
grows with the job: equal stories of thousands of ranks become one line with ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scoutd.daemon.cli import ranges, words
from scoutd.proto.v1 import verdict_pb2 as pb

STYLES: Final = {pb.OPEN: "yellow", pb.CONFIRMED: "red", pb.RESOLVED: "green", pb.SUPPRESSED: "bright_black"}
MAX_NAMED: Final = 4
"""Implicated ranks that get lines of their own."""

MAX_STORIES: Final = 24
"""Groups of cleared ranks that an explanation tells apart."""

MAX_LINES: Final = 8
"""Lines of evidence of one kind; all of it is in the JSON."""

CALLERS: Final = 1
"""Frames of the user's code shown above the innermost one: a loop in a small function says little alone."""

Row = tuple[str, str]


def panel(verdict: pb.Verdict, footer: str = "") -> Panel:
    """The verdict at a glance; ``footer`` is the command that tells more."""
    rows = [*_culprits(verdict), *_doing(verdict), *_since(verdict), *_sides(verdict)]
    rows += [("cleared" if i == 0 else "", line) for i, line in enumerate(words.cleared(verdict))]
    rows += [("to do", words.action(verdict))]
    if verdict.suppressed_because:
        rows.append(("held back", verdict.suppressed_because))
    rows.append(("verdict", verdict.id))
    if footer:
        rows.append(("more", footer))
    headline = Text(verdict.summary or title(verdict), style="bold")
    return Panel(
        Group(headline, Text(), _grid(rows)),
        title=Text(f" {title(verdict)} "),
        title_align="left",
        border_style=STYLES.get(verdict.state, ""),
        padding=(0, 1),
    )


def title(verdict: pb.Verdict) -> str:
    """``HANG · RANK_STALLED · rank 2``; a death is not called a hang, though others hang because of it."""
    who = ranges.name(each.rank for each in verdict.implicated)
    symptom = [] if verdict.cause == pb.PROCESS_DEAD else [words.name(pb.Symptom, verdict.symptom)]
    parts = [*symptom, words.name(pb.Cause, verdict.cause), who]
    if verdict.state != pb.CONFIRMED:
        parts.append(words.name(pb.State, verdict.state))
    return " · ".join(parts)


def _grid(rows: Iterable[Row]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(label, Text(value))
    return grid


def _culprits(verdict: pb.Verdict) -> list[Row]:
    if not verdict.implicated:
        return [("culprit", words.nobody(verdict))]
    rows: list[Row] = []
    for each in verdict.implicated[:MAX_NAMED]:
        rows.append(("culprit" if not rows else "", _culprit(each)))
        if each.reason.split(";")[0] not in verdict.summary:
            rows.append(("", each.reason))
        rows += [("", line) for note in verdict.death_notes if note.rank == each.rank for line in _note(note)]
    rest = [each.rank for each in verdict.implicated[MAX_NAMED:]]
    return [*rows, ("", f"and {ranges.name(rest)}")] if rest else rows


def _culprit(each: pb.Implicated) -> str:
    known = [f"on {each.node}" if each.node else "", f"pid {each.pid}" if each.pid else "", each.device]
    return f"rank {each.rank} " + ", ".join(part for part in known if part)


def _note(note: pb.DeathNote) -> list[str]:
    where = words.short_path(note.user_location or note.location)
    return [f"{note.type}: {note.message}".rstrip(": "), *([f"at {where}"] if where else [])]


def _doing(verdict: pb.Verdict) -> list[Row]:
    rows: list[Row] = []
    if verdict.phase != pb.PHASE_UNSPECIFIED or verdict.operation:
        rows.append(("doing", words.doing(verdict.phase, verdict.operation)))
    for each in verdict.implicated[:1]:
        stack = words.stack_of(verdict, each.rank)
        frames = words.own_frames(stack.frames) if stack is not None else []
        if frames:
            rows.append(("code", words.place(frames[0])))
            rows += [("", f"called by {words.place(frame)}") for frame in frames[1 : 1 + CALLERS]]
        elif stack is not None and stack.refused:
            rows.append(("code", f"unknown, no stack: {stack.refused}"))
    return rows


def _since(verdict: pb.Verdict) -> list[Row]:
    text = words.since(verdict)
    return [("since", text)] if text else []


def _sides(verdict: pb.Verdict) -> list[Row]:
    lines = words.fingerprints(verdict) if verdict.cause == pb.COLLECTIVE_MISMATCH else []
    return [("calls" if i == 0 else "", line) for i, line in enumerate(lines)]


def explanation(verdict: pb.Verdict) -> RenderableType:
    """The panel, and below it everything the verdict rests on."""
    parts: list[RenderableType] = [panel(verdict)]
    for heading, body in (
        ("Course", _grid(_course(verdict))),
        ("Cleared", _grid(("", line) for line in words.cleared(verdict, MAX_STORIES))),
        ("Evidence", _grid(_evidence(verdict))),
        ("Deaths", _grid(_deaths(verdict))),
    ):
        if body.row_count:
            parts += [Text(), Text(heading, style="bold"), body]
    for stack in verdict.stacks:
        if not stack.frames and not stack.refused:
            continue
        parts += [Text(), Text(f"Stack of rank {stack.rank}, innermost first", style="bold"), _stack(stack)]
    return Group(*parts)


def _course(verdict: pb.Verdict) -> list[Row]:
    latency = verdict.detection_latency_ms / 1000
    times = [
        ("last progress", verdict.onset_at),
        ("opened", verdict.opened_at),
        ("confirmed", verdict.confirmed_at),
        ("closed", verdict.closed_at),
    ]
    rows = [(label, words.clock(when)) for label, text in times if (when := words.moment(text)) is not None]
    if latency:
        rows.append(("detected after", words.duration(latency)))
    rows.append(("job", f"{verdict.job}, generation {verdict.generation}"))
    if verdict.peer_group:
        rows.append(
            ("judged among", f"{ranges.name(verdict.peer_group)}: {words.name(pb.Status, verdict.status)}")
        )
    return rows


def _evidence(verdict: pb.Verdict) -> list[Row]:
    """Items of one kind and text are one line, whatever the number of ranks that share them; of a kind with
    many texts come the implicated ranks' first, then the first others and a count."""
    kinds: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for item in verdict.evidence:
        ranks = kinds[item.kind][item.text]
        if item.HasField("rank"):
            ranks.append(item.rank)
    guilty = {each.rank for each in verdict.implicated}
    rows: list[Row] = []
    for kind, texts in kinds.items():
        ordered = sorted(texts.items(), key=lambda each: not guilty & set(each[1]))
        lines = [f"{ranges.name(ranks)}: {text}" if ranks else text for text, ranks in ordered]
        rows += [(kind, line) for line in lines[:MAX_LINES]]
        if len(lines) > MAX_LINES:
            rows.append((kind, f"… and {len(lines) - MAX_LINES} more"))
    return rows


def _deaths(verdict: pb.Verdict) -> list[Row]:
    return [(f"rank {note.rank}", "\n".join(_note(note))) for note in verdict.death_notes]


def _stack(stack: pb.Stack) -> RenderableType:
    """The innermost frame of the user's code is marked, other people's code is dim."""
    if not stack.frames:
        return Text(f"  none: {stack.refused}")
    frames = words.own_frames(stack.frames)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for frame in stack.frames:
        style = "bold" if frame is frames[0] else "" if words.is_own(frame) else "bright_black"
        grid.add_row("→" if frame is frames[0] else " ", Text(words.place(frame)), style=style)
    return grid
