"""Between the core's dataclasses and the wire: the only file that knows both.

The enums of the core and of ``scoutd.v1`` carry the same names (a test compares them), so they cross by name;
a name the wire does not know becomes its zero value. Monotonic stamps become RFC 3339 texts here. JSON is
proto3 JSON with the field names of the .proto files: enum values by name, ranks as numbers, 64-bit integers
as strings, fields without presence always printed, so that a program finds every key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import is_
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import Message

from scoutd.agent.evidence import DeathNote, Stack
from scoutd.agent.verdict import Cleared, EvidenceItem, Implicated, Verdict
from scoutd.daemon.clock import NS_PER_S, Stamps
from scoutd.proto.v1 import verdict_pb2 as pb

NS_PER_MS: Final = 1_000_000
_ENUMS: Final[dict[str, Any]] = {
    "symptom": pb.Symptom,
    "status": pb.Status,
    "state": pb.State,
    "cause": pb.Cause,
    "scope": pb.Scope,
    "phase": pb.Phase,
    "action": pb.Action,
}


def wire_enum(field: str, name: str) -> Any:
    """The wire value of an enum field ("cause", "phase" …) by name; 0 for a name the wire does not have."""
    return dict(_ENUMS[field].items()).get(name, 0)


class Lists:
    """The lists of a verdict that grow with the job, in their wire form. The states of a verdict follow each
    other and share them: they are encoded once."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._encoded = pb.Verdict()

    def of(self, verdict: Verdict) -> pb.Verdict:
        """A message that holds them and nothing else."""
        lists = (verdict.cleared, verdict.peer_group, verdict.evidence)
        if len(self._of) != len(lists) or not all(map(is_, self._of, lists)):
            self._encoded = pb.Verdict(peer_group=verdict.peer_group)
            _add_cleared(self._encoded, verdict.cleared)
            _add_evidence(self._encoded, verdict.evidence)
            self._of = lists
        return self._encoded


def encode_verdict(verdict: Verdict, stamps: Stamps, lists: Lists | None = None) -> pb.Verdict:
    """The wire form of a verdict, with wall times. ``lists``: those of the verdict encoded before."""
    words = pb.Verdict(
        id=verdict.id,
        job=verdict.job,
        generation=verdict.generation,
        operation=verdict.operation,
        implicated=[_implicated(each) for each in verdict.implicated],
        stacks=[_stack(each.rank, each.stack) for each in verdict.stacks],
        death_notes=[_death_note(each.rank, each.note) for each in verdict.death_notes],
        summary=verdict.summary,
        suppressed_because=verdict.suppressed_because,
        detection_latency_ms=(verdict.detection_latency_ns or 0) / NS_PER_MS,
    )
    message = pb.Verdict()
    message.CopyFrom((lists or Lists()).of(verdict))
    message.MergeFrom(words)
    for field in _ENUMS:
        setattr(message, field, wire_enum(field, getattr(verdict, field).value))
    _set_times(message, verdict, stamps)
    return message


def _set_times(message: pb.Verdict, verdict: Verdict, stamps: Stamps) -> None:
    message.opened_at = stamps.text(verdict.opened_ns)
    message.confirmed_at = stamps.text(verdict.confirmed_ns)
    message.onset_at = stamps.text(verdict.onset_ns)
    message.closed_at = stamps.text(verdict.closed_ns)


def _implicated(each: Implicated) -> pb.Implicated:
    return pb.Implicated(
        rank=each.rank, node=each.node, pid=max(each.pid, 0), device=each.device, reason=each.reason
    )


def _add_cleared(message: pb.Verdict, cleared: Iterable[Cleared]) -> None:
    """Thousands of ranks wait in a few calls: lines that differ in the rank alone are copies of one."""
    lines: dict[tuple[object, ...], pb.Cleared] = {}
    for each in cleared:
        key = (each.waits_for, each.reason)
        line = lines.get(key)
        if line is None:
            line = lines[key] = pb.Cleared(waits_for=each.waits_for, reason=each.reason)
        line.rank = each.rank
        message.cleared.append(line)


def _add_evidence(message: pb.Verdict, evidence: Iterable[EvidenceItem]) -> None:
    """As ``_add_cleared``; what concerns all has no rank."""
    lines: dict[tuple[object, ...], pb.EvidenceItem] = {}
    for each in evidence:
        key = (each.kind, each.text, each.rank is None)
        line = lines.get(key)
        if line is None:
            line = lines[key] = pb.EvidenceItem(kind=each.kind, text=each.text)
        if each.rank is not None:
            line.rank = each.rank
        message.evidence.append(line)


def _stack(rank: int, stack: Stack) -> pb.Stack:
    frames = [
        pb.Frame(function=frame.function, file=frame.file, line=max(frame.line, 0), native=frame.native)
        for frame in stack.frames
    ]
    return pb.Stack(rank=rank, frames=frames, refused=stack.refused)


def _death_note(rank: int, note: DeathNote) -> pb.DeathNote:
    return pb.DeathNote(
        rank=rank,
        source=note.source,
        type=note.kind,
        message=note.message,
        location=note.location,
        user_location=note.user_location,
    )


def to_json(message: Message) -> str:
    """One line of proto3 JSON."""
    return json.dumps(to_dict(message), ensure_ascii=False, separators=(",", ":"))


def to_dict(message: Message) -> dict[str, Any]:
    """proto3 JSON as a dictionary."""
    fields: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return fields


def to_bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def verdict_from_bytes(data: bytes) -> pb.Verdict:
    return pb.Verdict.FromString(data)


def seconds(duration_ns: int) -> float:
    return duration_ns / NS_PER_S
