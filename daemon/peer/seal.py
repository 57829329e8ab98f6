"""Sealed messages: how a body and its header travel with their code.

The header and the body are serialized before they are authenticated and parsed after it, so that what the
code covers is what was on the wire. The header alone is looked at first, because it names the job whose key
is needed; nothing in it is believed before the code is verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from scoutd.daemon.peer import sessions
from scoutd.daemon.peer.messagecodec import MAX_BODY_BYTES, name
from scoutd.proto.v1 import peer_pb2 as pb

PROTOCOL: Final = 1
MAX_HEADER_BYTES: Final = 1024
HELLO: Final = "Hello"


class TooLong(ValueError):
    """The message is longer than anybody may send."""


@dataclass(frozen=True, slots=True)
class Membership:
    """That this agent belongs to a job: who it is there, and the keys that prove it, the preferred first."""

    job: str
    generation: int
    node: str
    keys: tuple[bytes, ...]


def request(member: Membership, kind: str, session: bytes, counter: int, body: bytes) -> pb.Sealed:
    """Sealed with the preferred key."""
    header = _header(member, session, counter)
    return pb.Sealed(header=header, body=body, mac=sessions.request_code(member.keys[0], kind, header, body))


def reply(
    member: Membership, key: bytes, kind: str, asked: pb.Sealed, session: bytes, body: bytes
) -> pb.Sealed:
    """Sealed with the key that the request was sealed with, and bound to it."""
    header = _header(member, session, 0)
    code = sessions.reply_code(key, kind, asked.mac, header, body)
    return pb.Sealed(header=header, body=body, mac=code)


def parse(data: bytes) -> pb.Sealed:
    """The sealed message in these bytes. Raises ValueError for none."""
    try:
        return pb.Sealed.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a sealed message: {error}") from error


def open_header(sealed: pb.Sealed) -> pb.Header:
    """The header, not to be believed yet.

    Raises:
        TooLong, ValueError: there is none, or a part of it is not acceptable.
    """
    if len(sealed.header) > MAX_HEADER_BYTES or len(sealed.body) > MAX_BODY_BYTES:
        raise TooLong("the message is too long")
    try:
        header = pb.Header.FromString(sealed.header)
    except DecodeError as error:
        raise ValueError(f"no header: {error}") from error
    name(header.job, "the job")
    name(header.node, "the node")
    return header


def key_of_request(member: Membership, kind: str, sealed: pb.Sealed) -> bytes | None:
    """The key of ours that the request was sealed with, None if none was."""
    for key in member.keys:
        if sessions.same(sessions.request_code(key, kind, sealed.header, sealed.body), sealed.mac):
            return key
    return None


def is_reply(member: Membership, kind: str, asked: pb.Sealed, sealed: pb.Sealed) -> bool:
    """The reply was sealed with the preferred key, for exactly this request."""
    code = sessions.reply_code(member.keys[0], kind, asked.mac, sealed.header, sealed.body)
    return sessions.same(code, sealed.mac)


def _header(member: Membership, session: bytes, counter: int) -> bytes:
    return pb.Header(
        protocol=PROTOCOL,
        job=member.job,
        generation=member.generation,
        node=member.node,
        session=session,
        counter=counter,
    ).SerializeToString()
