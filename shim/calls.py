"""The CALLS table: public collectives, P2P and store calls, written before the call is made.

A slot is taken from a queue whose head is the one that finished longest ago, so that recent calls stay
readable; with 64 calls pending at once further ones are counted as dropped. What depends only on the
group, the operation and the arguments' shape (fingerprint, text fields) is packed once into a *template*
and reused, so that a publication costs the same in a group of 8 and of 8192.

The fingerprint covers what members must agree on: group, operation, element type, size (where sizes must
agree) and argument (reduce operation or root). The splits of an all_to_all stand beside it (``splits.py``).

HISTORY keeps the last fingerprints of every group. Collectives that no public call shows are added from the
recorder's dump; it knows less of them, so their fingerprints carry a mark and compare among themselves.
"""

from __future__ import annotations

import hashlib
import struct
import time
import zlib
from collections import deque
from typing import Final, NamedTuple

from scoutd.proto import shm
from scoutd.shim.groups import GroupState
from scoutd.shim.shmfile import ShmFile

_HEAD: Final = struct.Struct("<QQQQQQQHHHxxii")
_TAIL: Final = struct.Struct("<32s16s48s48s")
_LENGTH: Final = _HEAD.size + _TAIL.size
_pack: Final = _HEAD.pack
_seal: Final = shm.HEAD.pack
_crc: Final = zlib.crc32
_now: Final = time.monotonic_ns
_PENDING: Final = int(shm.CallState.PENDING)
_FAILED: Final = int(shm.CallState.FAILED)

_AT: Final = shm.CALLS.offset
_COPY: Final = shm.CALLS.copy_bytes
_HISTORY_AT: Final = shm.HISTORY.offset
_HISTORY_COPY: Final = shm.HISTORY.copy_bytes
_HISTORY_PACK: Final = shm.HISTORY.codec.struct.pack
_HISTORY_LENGTH: Final = shm.HISTORY.codec.struct.size
_DEPTH: Final = shm.HISTORY_DEPTH

if shm.CALLS.codec.struct.size != _LENGTH:
    raise shm.LayoutError("CALLS no longer has the fields that calls.py packs by hand")


class Template(NamedTuple):
    """What every call with the same group, operation and arguments shares."""

    kind: int
    fingerprint: int
    numel: int
    text: bytes
    operation: bytes
    """The operation as a progress coordinate stores it."""


def make_template(
    kind: int, group: int, operation: str, dtype: str, numel: int, argument: str, shape: str
) -> Template:
    """``numel`` is UNKNOWN_U64 where members' sizes may legally differ; it is then not compared."""
    subject = "p2p" if kind in (shm.CallKind.P2P_SEND, shm.CallKind.P2P_RECV) else operation
    text = f"{group}|{subject}|{dtype}|{numel}|{argument}"
    fingerprint = fingerprint_of(text)
    fields = [
        shm.encode_text(value, size)
        for value, size in ((operation, 32), (dtype, 16), (argument, 48), (shape, 48))
    ]
    return Template(kind, fingerprint, numel, _TAIL.pack(*fields), shm.encode_text(operation, 96))


def fingerprint_of(text: str) -> int:
    """63 bits, never 0: the highest bit says that a fingerprint was recorded."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & ~shm.RECORDED or 1


class OpenCall:
    """A published call that has not ended. ``sequence`` is within its group (P2P: with its peer)."""

    __slots__ = ("entered_ns", "group", "peer", "sequence", "slot", "splits", "tag", "template", "thread")

    def __init__(
        self,
        slot: int,
        group: int,
        sequence: int,
        template: Template,
        thread: int,
        peer: int,
        tag: int,
        splits: bytes,
    ) -> None:
        self.slot = slot
        self.group = group
        self.sequence = sequence
        self.template = template
        self.thread = thread
        self.peer = peer
        self.tag = tag
        self.splits = splits
        self.entered_ns = _now()


class Calls:
    """The table's writer. Several threads may publish: a slot belongs to the call that took it."""

    def __init__(self, file: ShmFile) -> None:
        self._file: Final = file
        self._free: deque[int] = deque(range(shm.CALLS.slots))
        self._sequences = [0] * shm.CALLS.slots
        self.failed = False
        """Some call was left by an exception."""

    def begin(
        self,
        group: int,
        sequence: int,
        template: Template,
        waiting: int,
        thread: int,
        peer: int = -1,
        tag: int = 0,
        splits: bytes = b"",
    ) -> OpenCall | None:
        """The call is published as pending; None if no slot is free. ``splits``: of an all_to_all."""
        try:
            slot = self._free.popleft()
        except IndexError:
            self._file.dropped += 1
            return None
        call = OpenCall(slot, group, sequence, template, thread, peer, tag, splits)
        self._write(call, _PENDING, waiting, 0)
        return call

    def wait(self, call: OpenCall, thread: int) -> None:
        """The host is inside the wait for the pending call."""
        call.thread = thread
        self._write(call, _PENDING, 1, 0)

    def end(self, call: OpenCall, state: int) -> None:
        """The call is over; its slot stays readable until it is the oldest."""
        if state == _FAILED:
            self.failed = True
        self._write(call, state, 0, _now())
        self._free.append(call.slot)

    def remember(self, state: GroupState, sequence: int, fingerprint: int) -> None:
        """The group's history has this fingerprint at ``sequence``."""
        if sequence <= 0:
            return
        self._write_history(state, sequence, fingerprint)

    def recall(self, state: GroupState, sequence: int, subject: str) -> None:
        """The history has a recorded collective at ``sequence``, unless that place is taken by this or a
        later one. ``subject``: what the recorder knows of it."""
        at = (_HISTORY_AT + (state.slot * _DEPTH + sequence % _DEPTH) * _HISTORY_COPY) >> 3
        if 0 < sequence <= state.highest and self._file.words[at] < sequence:
            self._write_history(state, sequence, fingerprint_of(f"{state.group}|{subject}") | shm.RECORDED)

    def _write_history(self, state: GroupState, sequence: int, fingerprint: int) -> None:
        payload = _HISTORY_PACK(state.group, sequence, fingerprint)
        at = _HISTORY_AT + (state.slot * _DEPTH + sequence % _DEPTH) * _HISTORY_COPY
        file = self._file
        sealed = _seal(_crc(payload, sequence & 0xFFFFFFFF), _HISTORY_LENGTH) + payload
        file.view[at + 8 : at + 16 + _HISTORY_LENGTH] = sealed
        file.words[at >> 3] = sequence

    def _write(self, call: OpenCall, state: int, waiting: int, left_ns: int) -> None:
        slot = call.slot
        kind, fingerprint, numel, text, _ = call.template
        self._sequences[slot] = sequence = self._sequences[slot] + 1
        payload = (
            _pack(
                call.group,
                call.sequence,
                call.entered_ns,
                left_ns,
                fingerprint,
                numel,
                call.thread,
                state,
                waiting,
                kind,
                call.peer,
                call.tag,
            )
            + text
            + call.splits
        )
        at = _AT + (slot * 2 + (sequence & 1)) * _COPY
        file = self._file
        length = len(payload)
        file.view[at + 8 : at + 16 + length] = _seal(_crc(payload, sequence & 0xFFFFFFFF), length) + payload
        file.words[at >> 3] = sequence
