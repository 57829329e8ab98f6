"""Records in shared memory: how one is packed, sealed, written and read back.

A *section* is a table of slots; each slot has one or more *copies*; a copy is
``sequence:u64 checksum:u32 length:u32 payload``, padded to a multiple of 64 bytes. ``checksum`` is CRC-32
over the payload, started from the sequence, so it covers both. A writer uses copy ``sequence % copies``,
stores checksum, length and payload with one slice assignment and *then* the sequence with one aligned 8-byte
store. A reader takes the valid copy with the highest sequence; a torn copy fails its checksum on any CPU,
whatever the order in which the stores became visible, and is never believed. Sequence 0 means: never
written. Which sections there are is said in ``scoutd.proto.shm``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

HEAD: Final = struct.Struct("<II")
SEQUENCE: Final = struct.Struct("<Q")


class LayoutError(Exception):
    """The bytes are not a shared-memory file of this layout version; the text says what is wrong."""


Record = TypeVar("Record")


def encode_text(text: str, size: int) -> bytes:
    """UTF-8 of at most ``size`` bytes, cut at a character's border."""
    data = text.encode("utf-8", "replace")
    return data if len(data) <= size else data[:size].decode("utf-8", "ignore").encode()


def decode_text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "replace")


class Codec(Generic[Record]):
    """Packs one kind of record into its payload and back; text fields are found by their format."""

    def __init__(self, layout: str, make: Callable[..., Record]) -> None:
        self.struct: Final = struct.Struct("<" + layout)
        self.make: Final = make
        self.texts: Final = [(i, size) for i, size in enumerate(_field_sizes(layout)) if size is not None]

    def pack(self, record: Record) -> bytes:
        fields = list(record)  # type: ignore[call-overload]
        for i, size in self.texts:
            fields[i] = encode_text(fields[i], size)
        return self.struct.pack(*fields)

    def unpack(self, payload: bytes) -> Record:
        fields = list(self.struct.unpack_from(payload))
        for i, _ in self.texts:
            fields[i] = decode_text(fields[i])
        return self.make(*fields)


def _field_sizes(layout: str) -> list[int | None]:
    """Per value of a struct format: its size if it is text, else None. Pads ("x") are not values."""
    sizes: list[int | None] = []
    digits = ""
    for char in layout:
        if char.isdigit():
            digits += char
        elif char == "s":
            sizes.append(int(digits))
            digits = ""
        elif char == "x":
            digits = ""
        else:
            sizes.extend([None] * int(digits or "1"))
            digits = ""
    return sizes


@dataclass(frozen=True)
class Section(Generic[Record]):
    """One table of records: ``slots`` × ``copies`` × ``copy_bytes`` from ``offset``."""

    name: str
    offset: int
    slots: int
    copies: int
    copy_bytes: int
    codec: Codec[Record]

    @property
    def size(self) -> int:
        return self.slots * self.copies * self.copy_bytes

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def payload_limit(self) -> int:
        return self.copy_bytes - SEQUENCE.size - HEAD.size

    def position(self, slot: int, sequence: int) -> int:
        """Byte offset of the copy that ``sequence`` is written to."""
        return self.offset + (slot * self.copies + sequence % self.copies) * self.copy_bytes


class Words(Protocol):
    """A writable view of 8-byte words over the same memory as the byte view."""

    def __setitem__(self, index: int, value: int, /) -> None: ...


def seal(payload: bytes, sequence: int) -> bytes:
    """Checksum, length and payload: what follows the sequence in a copy."""
    checksum = zlib.crc32(payload, sequence & 0xFFFFFFFF)
    return HEAD.pack(checksum, len(payload)) + payload


def write(
    view: memoryview, words: Words, section: Section[Record], slot: int, sequence: int, record: Record
) -> None:
    """Publish ``record`` as ``sequence`` (1, 2, 3 … per slot) of one slot.

    ``view`` is the whole file as bytes and ``words`` the same memory as native 8-byte words. One writer
    per slot at a time. Hot paths in the shim do the same with a payload they packed themselves.
    """
    sealed = seal(section.codec.pack(record), sequence)
    at = section.position(slot, sequence)
    view[at + 8 : at + 8 + len(sealed)] = sealed
    words[at >> 3] = sequence


def read(data: bytes, base: int, section: Section[Record], slot: int) -> Record | None:
    """The newest valid record of a slot, None if there is none (never written, or torn).

    ``data`` holds the file's bytes from ``base`` on; a slot outside of it raises LayoutError.
    """
    best = 0
    payload = b""
    for copy in range(section.copies):
        at = section.position(slot, copy) - base
        sealed = _valid_copy(data, at, section)
        if sealed is not None and sealed[0] > best:
            best, payload = sealed
    if not best:
        return None
    try:
        return section.codec.unpack(payload)
    except struct.error as error:
        raise LayoutError(f"section {section.name}: {error}") from error


def _valid_copy(data: bytes, at: int, section: Section[Record]) -> tuple[int, bytes] | None:
    if at < 0 or at + section.copy_bytes > len(data):
        raise LayoutError(f"section {section.name} lies outside of the file")
    (sequence,) = SEQUENCE.unpack_from(data, at)
    if not sequence:
        return None
    checksum, length = HEAD.unpack_from(data, at + 8)
    if length > section.payload_limit or length < section.codec.struct.size:
        return None
    payload = data[at + 16 : at + 16 + length]
    if zlib.crc32(payload, sequence & 0xFFFFFFFF) != checksum:
        return None
    return sequence, payload
