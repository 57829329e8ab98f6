"""Requests and replies of the exchange ↔ bodies of ``scoutd.v1.Peer``.

One kind per RPC, named as in the service. Bodies are bounded: a writer leaves out reports that do not fit
(the next round brings them; loss is harmless), a reader refuses what is longer, and whatever the bytes are,
it returns a message or raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from scoutd.agent.messages import (
    Blob,
    Columns,
    Layout,
    LayoutReply,
    Mark,
    Order,
    OrderReply,
    Probe,
    ProbeReply,
    Push,
    PushReply,
    Relay,
    RelayReply,
    Reply,
    Request,
    Sync,
    SyncReply,
)
from scoutd.agent.replay import REQUESTED
from scoutd.agent.replica import MOST
from scoutd.daemon.peer.reportcodec import MAX_REPORT_BYTES
from scoutd.daemon.peer.tallycodec import read_tallies, write_tallies
from scoutd.proto.v1 import peer_pb2 as pb

MAX_BODY_BYTES: Final = 2 << 20
BLOB_BYTES: Final = 1 << 20
"""Reports in one body, so that marks of 12,500 nodes (45 bytes each) fit beside them."""

MAX_NAME: Final = 128
MAX_MARKS: Final = 1 << 15
MOST_RANKS: Final = 1 << 16
"""Of one node, whose ranks were told of an order."""

LAYOUT_BYTES: Final = 64 << 10
"""Of one node: 16 ranks in 20 groups of 64 need 5 kB."""

KINDS: Final[dict[type, str]] = {
    Probe: "Probe",
    Relay: "Relay",
    Sync: "Sync",
    Push: "Push",
    Order: "Order",
    Layout: "Layout",
}


def kind_of(request: Request) -> str:
    """The RPC that carries this request."""
    return KINDS[type(request)]


def encode(message: Request | Reply) -> bytes:
    """The body of a request or reply."""
    return _WRITERS[type(message)](message).SerializeToString()


def decode_request(kind: str, body: bytes) -> Request:
    """The request of this RPC.

    Raises:
        ValueError: the body is not one.
    """
    request: Request = _decode(_REQUESTS[kind], body)
    return request


def decode_reply(kind: str, body: bytes) -> Reply:
    """The reply of this RPC.

    Raises:
        ValueError: the body is not one.
    """
    reply: Reply = _decode(_REPLIES[kind], body)
    return reply


def _decode(how: tuple[type[Message], Callable[[Any], Any]], body: bytes) -> Any:
    cls, read = how
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a body of {len(body)} bytes")
    try:
        message = cls.FromString(body)
    except DecodeError as error:
        raise ValueError(f"no {cls.__name__}: {error}") from error
    return read(message)


def _marks(marks: Iterable[Mark]) -> pb.Marks:
    columns = list(zip(*marks, strict=True))
    if not columns:
        return pb.Marks()
    node, address, incarnation, version, beat, held = columns
    return pb.Marks(
        node=node, address=address, incarnation=incarnation, version=version, beat=beat, held=held
    )


def _blobs(blobs: Iterable[Blob]) -> pb.Blobs:
    """As many as fit, the first always: the receiver refuses what is beyond all measure."""
    taken: list[Blob] = []
    room = BLOB_BYTES
    for blob in blobs:
        room -= len(blob.data) + MAX_NAME
        if room < 0 and taken:
            break
        taken.append(blob)
    return pb.Blobs(
        mark=_marks(blob.mark for blob in taken),
        data=[blob.data for blob in taken],
        age_ns=[max(0, blob.age_ns) for blob in taken],
    )


def name(text: str, what: str) -> str:
    """The text as a node, job or address. Raises ValueError for an empty, long or unprintable one."""
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(f"{what} is empty, too long or not printable")
    return text


def _read_marks(marks: pb.Marks) -> tuple[Mark, ...]:
    nodes, addresses = list(marks.node), list(marks.address)
    columns = (nodes, addresses, marks.incarnation, marks.version, marks.beat, marks.held)
    if len(nodes) > MAX_MARKS or any(len(column) != len(nodes) for column in columns):
        raise ValueError(f"{len(nodes)} marks, or columns that differ in length")
    if not all(nodes):
        raise ValueError("a node without a name")
    if max(marks.incarnation, default=0) > MOST:
        raise ValueError("an incarnation that nobody could outdo")
    texts = {*nodes, *addresses}
    if max(map(len, texts), default=0) > MAX_NAME or not all(map(str.isprintable, texts)):
        raise ValueError("a node or an address is too long or not printable")
    return tuple(map(Mark._make, zip(*columns, strict=True)))


def _columns(columns: Columns) -> pb.Columns:
    return pb.Columns(
        roster=columns.roster,
        version=columns.version,
        beat=columns.beat,
        held=columns.held,
        position=columns.at or (),
    )


def _read_columns(message: Any) -> Columns | None:
    """Those of a synchronisation, None if there are none."""
    if not message.HasField("columns"):
        return None
    told = message.columns
    version, beat, held, at = tuple(told.version), tuple(told.beat), tuple(told.held), tuple(told.position)
    if len(version) > MAX_MARKS or not len(version) == len(beat) == len(held):
        raise ValueError(f"{len(version)} versions, or columns that differ in length")
    if at and len(at) != len(version):
        raise ValueError(f"{len(at)} positions of {len(version)} nodes")
    if any(k >= following for k, following in pairwise(at)):
        raise ValueError("positions that are not in order")
    return Columns(told.roster, version, beat, held, None if version and not at else at)


def _read_blobs(blobs: pb.Blobs) -> tuple[Blob, ...]:
    marks = _read_marks(blobs.mark)
    if any(len(data) > MAX_REPORT_BYTES for data in blobs.data):
        raise ValueError("a report that is too long")
    return tuple(map(Blob._make, zip(marks, blobs.data, blobs.age_ns, strict=True)))


def _read_probe(message: pb.ProbeRequest) -> Probe:
    if not message.marks.node:
        raise ValueError("a probe without its sender's mark")
    told = read_tallies(message.tallies)
    return Probe(_read_marks(message.marks), message.alarm_ns, told, message.roster, message.known)


def _read_sync_reply(message: pb.SyncResponse) -> SyncReply:
    return SyncReply(
        _read_blobs(message.blobs),
        tuple(name(each, "a node") for each in message.wanted),
        _read_marks(message.marks),
        read_tallies(message.tallies),
        _read_columns(message),
        message.strange,
    )


def _read_order(message: pb.OrderRequest) -> Order:
    if not (0 < message.request < REQUESTED and message.variants and message.expires_ns):
        raise ValueError("an order without a sound id, a number of times, or a time")
    return Order(message.request, message.recipe, message.variants, message.expires_ns)


def _read_order_reply(message: pb.OrderResponse) -> OrderReply:
    if len(message.ranks) + len(message.refused) > MOST_RANKS:
        raise ValueError("more ranks than a node has")
    return OrderReply(tuple(message.ranks), tuple(message.refused))


def _read_layout_reply(message: pb.LayoutResponse) -> LayoutReply:
    if len(message.topology) > LAYOUT_BYTES:
        raise ValueError(f"a layout of {len(message.topology)} bytes")
    return LayoutReply(message.topology)


_WRITERS: Final[dict[type, Callable[[Any], Message]]] = {
    Probe: lambda m: pb.ProbeRequest(
        marks=_marks(m.marks),
        alarm_ns=m.alarm_ns,
        tallies=write_tallies(m.tallies),
        roster=m.roster,
        known=m.known,
    ),
    ProbeReply: lambda m: pb.ProbeResponse(
        marks=_marks(m.marks),
        alarm_ns=m.alarm_ns,
        tallies=write_tallies(m.tallies),
        roster=m.roster,
        known=m.known,
    ),
    Relay: lambda m: pb.RelayRequest(node=m.node, address=m.address),
    RelayReply: lambda m: pb.RelayResponse(reached=m.reached, marks=_marks(m.marks)),
    Sync: lambda m: pb.SyncRequest(
        marks=_marks(m.marks),
        alarm_ns=m.alarm_ns,
        tallies=write_tallies(m.tallies),
        columns=None if m.columns is None else _columns(m.columns),
    ),
    SyncReply: lambda m: pb.SyncResponse(
        blobs=_blobs(m.blobs),
        wanted=m.wanted,
        marks=_marks(m.marks),
        tallies=write_tallies(m.tallies),
        columns=None if m.columns is None else _columns(m.columns),
        strange=m.strange,
    ),
    Push: lambda m: pb.PushRequest(blobs=_blobs(m.blobs)),
    PushReply: lambda m: pb.PushResponse(taken=m.taken),
    Order: lambda m: pb.OrderRequest(
        request=m.request, recipe=m.recipe, variants=m.variants, expires_ns=m.expires_ns
    ),
    OrderReply: lambda m: pb.OrderResponse(ranks=m.ranks, refused=m.refused),
    Layout: lambda m: pb.LayoutRequest(),
    LayoutReply: lambda m: pb.LayoutResponse(topology=m.topology),
}
_REQUESTS: Final[dict[str, tuple[type[Message], Callable[[Any], Any]]]] = {
    "Probe": (pb.ProbeRequest, _read_probe),
    "Relay": (
        pb.RelayRequest,
        lambda m: Relay(name(m.node, "a node"), name(m.address, "an address")),
    ),
    "Sync": (
        pb.SyncRequest,
        lambda m: Sync(_read_marks(m.marks), m.alarm_ns, read_tallies(m.tallies), _read_columns(m)),
    ),
    "Push": (pb.PushRequest, lambda m: Push(_read_blobs(m.blobs))),
    "Order": (pb.OrderRequest, _read_order),
    "Layout": (pb.LayoutRequest, lambda m: Layout()),
}
_REPLIES: Final[dict[str, tuple[type[Message], Callable[[Any], Any]]]] = {
    "Probe": (
        pb.ProbeResponse,
        lambda m: ProbeReply(_read_marks(m.marks), m.alarm_ns, read_tallies(m.tallies), m.roster, m.known),
    ),
    "Relay": (pb.RelayResponse, lambda m: RelayReply(m.reached, _read_marks(m.marks))),
    "Sync": (pb.SyncResponse, _read_sync_reply),
    "Push": (pb.PushResponse, lambda m: PushReply(m.taken)),
    "Order": (pb.OrderResponse, _read_order_reply),
    "Layout": (pb.LayoutResponse, _read_layout_reply),
}
