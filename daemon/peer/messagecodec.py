"""Requests and replies of the exchange ↔ bodies of ``scoutd.v1.Peer``.

One kind per RPC, named as in the service. Bodies are bounded: a writer leaves out reports that do not fit
(the next round brings them; loss is harmless), a reader refuses what is longer, and whatever the bytes are,
it returns a message or raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from scoutd.agent.messages import (
    Blob,
    Mark,
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
from scoutd.daemon.peer.reportcodec import MAX_REPORT_BYTES
from scoutd.proto.v1 import peer_pb2 as pb

MAX_BODY_BYTES: Final = 2 << 20
BLOB_BYTES: Final = 1 << 20
"""Reports in one body, so that marks of 12,500 nodes (45 bytes each) fit beside them."""

MAX_NAME: Final = 128
MAX_MARKS: Final = 1 << 15
KINDS: Final[dict[type, str]] = {Probe: "Probe", Relay: "Relay", Sync: "Sync", Push: "Push"}


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


def _mark(mark: Mark) -> pb.Mark:
    return pb.Mark(
        node=mark.node,
        address=mark.address,
        incarnation=mark.incarnation,
        version=mark.version,
        beat=mark.beat,
        held=mark.held,
    )


def _marks(marks: Iterable[Mark]) -> list[pb.Mark]:
    return [_mark(each) for each in marks]


def _blobs(blobs: Iterable[Blob]) -> list[pb.Blob]:
    """As many as fit, the first always: the receiver refuses what is beyond all measure."""
    taken: list[pb.Blob] = []
    room = BLOB_BYTES
    for blob in blobs:
        room -= len(blob.data) + MAX_NAME
        if room < 0 and taken:
            break
        taken.append(pb.Blob(mark=_mark(blob.mark), data=blob.data, age_ns=max(0, blob.age_ns)))
    return taken


def name(text: str, what: str) -> str:
    """The text as a node, job or address. Raises ValueError for an empty, long or unprintable one."""
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(f"{what} is empty, too long or not printable")
    return text


def _read_mark(mark: pb.Mark) -> Mark:
    address = name(mark.address, "an address") if mark.address else ""
    return Mark(name(mark.node, "a node"), address, mark.incarnation, mark.version, mark.beat, mark.held)


def _read_marks(marks: Iterable[pb.Mark]) -> tuple[Mark, ...]:
    found = tuple(_read_mark(each) for each in marks)
    if len(found) > MAX_MARKS:
        raise ValueError(f"{len(found)} marks")
    return found


def _read_blob(blob: pb.Blob) -> Blob:
    if len(blob.data) > MAX_REPORT_BYTES:
        raise ValueError(f"a report of {len(blob.data)} bytes")
    return Blob(_read_mark(blob.mark), blob.data, blob.age_ns)


def _read_probe(message: pb.ProbeRequest) -> Probe:
    if not message.marks:
        raise ValueError("a probe without its sender's mark")
    return Probe(_read_marks(message.marks), message.alarmed)


def _read_sync_reply(message: pb.SyncResponse) -> SyncReply:
    return SyncReply(
        tuple(_read_blob(each) for each in message.blobs),
        tuple(name(each, "a node") for each in message.wanted),
        _read_marks(message.marks),
    )


_WRITERS: Final[dict[type, Callable[[Any], Message]]] = {
    Probe: lambda m: pb.ProbeRequest(marks=_marks(m.marks), alarmed=m.alarmed),
    ProbeReply: lambda m: pb.ProbeResponse(marks=_marks(m.marks), alarmed=m.alarmed),
    Relay: lambda m: pb.RelayRequest(node=m.node, address=m.address),
    RelayReply: lambda m: pb.RelayResponse(reached=m.reached, marks=_marks(m.marks)),
    Sync: lambda m: pb.SyncRequest(marks=_marks(m.marks)),
    SyncReply: lambda m: pb.SyncResponse(blobs=_blobs(m.blobs), wanted=m.wanted, marks=_marks(m.marks)),
    Push: lambda m: pb.PushRequest(blobs=_blobs(m.blobs)),
    PushReply: lambda m: pb.PushResponse(taken=m.taken),
}
_REQUESTS: Final[dict[str, tuple[type[Message], Callable[[Any], Any]]]] = {
    "Probe": (pb.ProbeRequest, _read_probe),
    "Relay": (
        pb.RelayRequest,
        lambda m: Relay(name(m.node, "a node"), name(m.address, "an address")),
    ),
    "Sync": (pb.SyncRequest, lambda m: Sync(_read_marks(m.marks))),
    "Push": (pb.PushRequest, lambda m: Push(tuple(_read_blob(each) for each in m.blobs))),
}
_REPLIES: Final[dict[str, tuple[type[Message], Callable[[Any], Any]]]] = {
    "Probe": (pb.ProbeResponse, lambda m: ProbeReply(_read_marks(m.marks), m.alarmed)),
    "Relay": (pb.RelayResponse, lambda m: RelayReply(m.reached, _read_marks(m.marks))),
    "Sync": (pb.SyncResponse, _read_sync_reply),
    "Push": (pb.PushResponse, lambda m: PushReply(m.taken)),
}
