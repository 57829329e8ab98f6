"""A node's report ↔ ``scoutd.v1.NodeEvidence``: what an agent publishes and what it reads of others.

Lossless for every report that this build makes, but for texts beyond ``tables.MAX_TEXT``. Reading trusts
nothing: whatever the bytes are, the result is a report or a ValueError. Equal bytes are read once, as long as
somebody keeps the report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from google.protobuf.message import DecodeError

from scoutd.agent.evidence import (
    Activity,
    Call,
    CallState,
    Coordinate,
    DeathNote,
    Fingerprints,
    Frame,
    GroupView,
    NodeReport,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    SeenDeath,
    Source,
    Stack,
)
from scoutd.agent.firsts import MOST_SEEN
from scoutd.daemon.peer import replaycodec
from scoutd.daemon.peer.tables import Reader, Writer, at, cut
from scoutd.proto.v1 import evidence_pb2 as pb
from scoutd.proto.v1 import verdict_pb2

MAX_REPORT_BYTES: Final = 1 << 20
"""A node of 16 ranks with full tables of calls needs 50 kB."""

MAX_RANKS: Final = 4096
MAX_SPLITS: Final = 16
MAX_HISTORY: Final = 16
UNKNOWN_SPLIT: Final = (1 << 32) - 1
STATUSES: Final = {
    ProcessStatus.RUNNING: pb.PROCESS_RUNNING,
    ProcessStatus.STOPPED: pb.PROCESS_STOPPED_STATE,
    ProcessStatus.GONE: pb.PROCESS_GONE,
    ProcessStatus.UNKNOWN: pb.PROCESS_UNKNOWN,
}
STATUSES_READ: Final = {wire: status for status, wire in STATUSES.items()}
STATES: Final = {
    CallState.PENDING: pb.CALL_PENDING,
    CallState.DONE: pb.CALL_DONE,
    CallState.FAILED: pb.CALL_FAILED,
}
STATES_READ: Final = {wire: state for state, wire in STATES.items()}
PHASES: Final[dict[Phase, Any]] = {
    phase: dict(verdict_pb2.Phase.items()).get(phase.value, 0) for phase in Phase
}
_KEPT: Final[WeakValueDictionary[bytes, NodeReport]] = WeakValueDictionary()
PHASES_READ: Final = {wire: phase for phase, wire in PHASES.items()}


def encode_report(report: NodeReport) -> bytes:
    """The report in its wire form."""
    message = pb.NodeEvidence(
        job=cut(report.job),
        generation=report.generation,
        node=cut(report.node),
        incarnation=report.incarnation,
        version=report.version,
        world_size=report.world_size,
    )
    writer = Writer(message)
    for rank in report.ranks:
        _write_rank(message.ranks.add(), rank, writer)
    message.seen.extend(pb.SeenDeath(rank=each.rank, age_ns=each.age_ns) for each in report.seen)
    return message.SerializeToString()


def decode_report(data: bytes) -> NodeReport:
    """The report in these bytes.

    Raises:
        ValueError: they are no acceptable report.
    """
    if len(data) > MAX_REPORT_BYTES:
        raise ValueError(f"a report of {len(data)} bytes")
    report = _KEPT.get(data)
    if report is None:
        report = _KEPT[data] = _decode(data)
    return report


def _decode(data: bytes) -> NodeReport:
    try:
        message = pb.NodeEvidence.FromString(data)
    except DecodeError as error:
        raise ValueError(f"no report: {error}") from error
    if not message.job or not message.node or len(message.ranks) > MAX_RANKS:
        raise ValueError("a report without job or node, or with too many ranks")
    if len(message.seen) > MOST_SEEN:
        raise ValueError(f"a report of {len(message.seen)} deaths elsewhere")
    reader = Reader(message)
    tables = replaycodec.Tables(message, reader)
    return NodeReport(
        job=message.job,
        generation=message.generation,
        node=message.node,
        incarnation=message.incarnation,
        version=message.version,
        world_size=message.world_size,
        ranks=tuple(_read_rank(each, reader, tables) for each in message.ranks),
        seen=tuple(SeenDeath(each.rank, each.age_ns) for each in message.seen),
    )


def _write_rank(message: pb.RankEvidence, rank: RankReport, writer: Writer) -> None:
    message.rank = rank.rank
    message.pid = rank.pid
    message.local_rank = rank.local_rank
    message.device = writer.text(rank.device)
    message.observed = rank.observed
    message.silent_ns = rank.silent_ns
    message.attached_age_ns = rank.attached_age_ns
    if rank.heartbeat_age_ns is not None:
        message.heartbeat_age_ns = rank.heartbeat_age_ns
    message.process.CopyFrom(_process(rank.process))
    message.coordinates.extend(_coordinate(each, writer) for each in rank.coordinates)
    # Groups first: calls refer to the table that they fill.
    message.groups.extend(_group(each, writer) for each in rank.groups)
    message.calls.extend(_call(each, writer) for each in rank.calls)
    message.notes.extend(_note(each, writer) for each in rank.notes)
    if rank.activity is not None:
        message.activity.CopyFrom(_activity(rank.activity))
    if rank.stack is not None:
        message.stack.CopyFrom(_stack(rank.stack, writer))
    if rank.recipes or rank.replays:
        replaycodec.write(message, rank, writer)


def _read_rank(message: pb.RankEvidence, reader: Reader, tables: replaycodec.Tables) -> RankReport:
    return RankReport(
        rank=message.rank,
        pid=message.pid,
        local_rank=message.local_rank,
        device=reader.text(message.device),
        observed=message.observed,
        process=_read_process(message.process),
        coordinates=tuple(_read_coordinate(each, reader) for each in message.coordinates),
        heartbeat_age_ns=message.heartbeat_age_ns if message.HasField("heartbeat_age_ns") else None,
        silent_ns=message.silent_ns,
        attached_age_ns=message.attached_age_ns,
        calls=tuple(_read_call(each, reader) for each in message.calls),
        groups=tuple(_read_group(each, reader) for each in message.groups),
        notes=tuple(_read_note(each, reader) for each in message.notes),
        activity=_read_activity(message.activity) if message.HasField("activity") else None,
        stack=_read_stack(message.stack, reader) if message.HasField("stack") else None,
        recipes=tables.recipes(message),
        replays=tables.replays(message),
    )


def _process(view: ProcessView) -> pb.ProcessEvidence:
    message = pb.ProcessEvidence(
        status=STATUSES[view.status],
        exit_code=view.exit_code,
        signal=view.signal,
        gone_age_ns=view.gone_age_ns,
        stopped_age_ns=view.stopped_age_ns,
    )
    if view.oom is not None:
        message.oom = view.oom
    return message


def _read_process(message: pb.ProcessEvidence) -> ProcessView:
    return ProcessView(
        status=STATUSES_READ.get(message.status, ProcessStatus.UNKNOWN),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        signal=message.signal if message.HasField("signal") else None,
        gone_age_ns=message.gone_age_ns if message.HasField("gone_age_ns") else None,
        stopped_age_ns=message.stopped_age_ns if message.HasField("stopped_age_ns") else None,
        oom=message.oom if message.HasField("oom") else None,
    )


def _coordinate(each: Coordinate, writer: Writer) -> pb.CoordinateEvidence:
    return pb.CoordinateEvidence(
        step=each.step,
        ordinal=each.ordinal,
        phase=PHASES[each.phase],
        operation=writer.text(each.operation),
        age_ns=each.age_ns,
        waiting=each.waiting,
        thread=each.thread,
    )


def _read_coordinate(message: pb.CoordinateEvidence, reader: Reader) -> Coordinate:
    return Coordinate(
        step=message.step,
        ordinal=message.ordinal,
        phase=PHASES_READ.get(message.phase, Phase.NONE),
        operation=reader.text(message.operation),
        age_ns=message.age_ns,
        waiting=message.waiting,
        thread=message.thread,
    )


def _call(each: Call, writer: Writer) -> pb.CallEvidence:
    message = pb.CallEvidence(
        sequence=each.sequence,
        state=STATES[each.state],
        signature=writer.signature(each),
        age_ns=each.age_ns,
        waiting=each.waiting,
        recorder=each.source is Source.RECORDER,
        peer=each.peer,
        tag=each.tag,
        left_age_ns=each.left_age_ns,
        sends=_splits(each.sends),
        receives=_splits(each.receives),
    )
    index = writer.group_of(each.group)
    if index is None:
        message.group_id = each.group
    else:
        message.group = index + 1
    return message


def _read_call(message: pb.CallEvidence, reader: Reader) -> Call:
    if message.state not in STATES_READ:
        raise ValueError(f"unknown state of a call {message.state}")
    kind, fingerprint, shape = at(reader.signatures, message.signature)
    return Call(
        group=at(reader.groups, message.group - 1)[0] if message.group else message.group_id,
        sequence=message.sequence,
        kind=kind,
        state=STATES_READ[message.state],
        fingerprint=fingerprint,
        shape=shape,
        age_ns=message.age_ns,
        waiting=message.waiting,
        source=Source.RECORDER if message.recorder else Source.PUBLIC,
        peer=message.peer if message.HasField("peer") else None,
        tag=message.tag if message.HasField("tag") else None,
        left_age_ns=message.left_age_ns if message.HasField("left_age_ns") else None,
        sends=_read_splits(message.sends),
        receives=_read_splits(message.receives),
    )


def _splits(numbers: Sequence[int | None]) -> list[int]:
    return [UNKNOWN_SPLIT if n is None else n for n in numbers[:MAX_SPLITS]]


def _read_splits(numbers: Sequence[int]) -> tuple[int | None, ...]:
    if len(numbers) > MAX_SPLITS:
        raise ValueError(f"{len(numbers)} splits")
    return tuple(None if n == UNKNOWN_SPLIT else n for n in numbers)


def _group(each: GroupView, writer: Writer) -> pb.GroupEvidence:
    message = pb.GroupEvidence(
        group=writer.group(each),
        enqueued=each.enqueued,
        retired=each.retired,
        as_of_age_ns=each.as_of_age_ns,
    )
    if each.history is not None:
        message.history_last = each.history.last
        message.history.extend(0 if h is None else writer.hash(h) + 1 for h in each.history.hashes)
    return message


def _read_group(message: pb.GroupEvidence, reader: Reader) -> GroupView:
    group, name, description, backend, members = at(reader.groups, message.group)
    retired = message.retired if message.HasField("retired") else None
    return GroupView(
        group,
        name,
        description,
        backend,
        members,
        message.enqueued,
        retired,
        message.as_of_age_ns,
        history=_read_history(message, reader),
    )


def _read_history(message: pb.GroupEvidence, reader: Reader) -> Fingerprints | None:
    if len(message.history) > MAX_HISTORY:
        raise ValueError(f"a history of {len(message.history)} collectives")
    if not message.history:
        return None
    hashes = tuple(at(reader.hashes, index - 1) if index else None for index in message.history)
    return Fingerprints(message.history_last, hashes)


def _note(each: DeathNote, writer: Writer) -> pb.DeathNoteEvidence:
    return pb.DeathNoteEvidence(
        source=writer.text(each.source),
        kind=writer.text(each.kind),
        message=writer.text(each.message),
        location=writer.text(each.location),
        user_location=writer.text(each.user_location),
        age_ns=each.age_ns,
    )


def _read_note(message: pb.DeathNoteEvidence, reader: Reader) -> DeathNote:
    return DeathNote(
        source=reader.text(message.source),
        kind=reader.text(message.kind),
        message=reader.text(message.message),
        location=reader.text(message.location),
        user_location=reader.text(message.user_location),
        age_ns=message.age_ns,
    )


def _activity(each: Activity) -> pb.ActivityEvidence:
    message = pb.ActivityEvidence(
        window_ns=each.window_ns, cpu_ratio=each.cpu_ratio, io_bytes_per_s=each.io_bytes_per_s
    )
    if each.stack_moving is not None:
        message.stack_moving = each.stack_moving
    return message


def _read_activity(message: pb.ActivityEvidence) -> Activity:
    if not (math.isfinite(message.cpu_ratio) and math.isfinite(message.io_bytes_per_s)):
        raise ValueError("activity is not a finite number")
    moving = message.stack_moving if message.HasField("stack_moving") else None
    return Activity(message.window_ns, message.cpu_ratio, message.io_bytes_per_s, moving)


def _stack(each: Stack, writer: Writer) -> pb.StackEvidence:
    frames = [
        pb.FrameEvidence(
            function=writer.text(frame.function),
            file=writer.text(frame.file),
            line=frame.line,
            native=frame.native,
        )
        for frame in each.frames
    ]
    message = pb.StackEvidence(
        frames=frames, age_ns=each.age_ns, native=each.native, refused=writer.text(each.refused)
    )
    if each.waits is not None:
        message.waits = each.waits
    return message


def _read_stack(message: pb.StackEvidence, reader: Reader) -> Stack:
    frames = tuple(
        Frame(reader.text(each.function), reader.text(each.file), each.line, each.native)
        for each in message.frames
    )
    waits = message.waits if message.HasField("waits") else None
    return Stack(frames, message.age_ns, message.native, waits, reader.text(message.refused))
