"""The decoded slots of one section of shared memory, decoded again only where they moved."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, Generic, TypeVar

from scoutd.proto import shm

Record = TypeVar("Record")


@lru_cache
def _numbers_of(copy_bytes: int, copies: int) -> struct.Struct:
    """Unpacks the sequence number of every copy, and skips the rest."""
    return struct.Struct("<" + f"Q{copy_bytes - 8}x" * copies)


class Table(Generic[Record]):
    """The decoded slots of one section and the sequence numbers they were decoded from."""

    def __init__(self, section: shm.Section[Record]) -> None:
        self.section: Final = section
        self.records: Final[dict[int, Record]] = {}
        self._numbers: tuple[int, ...] = ()

    def update(self, data: bytes, base: int, slots: int) -> bool:
        """Decodes what moved in the first ``slots`` slots of ``data``; False if some slot is torn."""
        section = self.section
        pattern = _numbers_of(section.copy_bytes, slots * section.copies)
        start = section.offset - base
        if start + pattern.size > len(data):
            raise shm.LayoutError(f"section {section.name}: truncated")
        before, now = self._numbers, pattern.unpack_from(data, start)
        if before[: len(now)] == now:
            return True
        torn = False
        copies = section.copies
        for at in range(0, len(now), copies):
            numbers = now[at : at + copies]
            if numbers == before[at : at + copies] or not any(numbers):
                continue
            record = shm.read(data, base, section, at // copies)
            if record is None:
                torn = True
                # Zeros stand for "not decoded": the next pass reads the slot again.
                now = now[:at] + (0,) * copies + now[at + copies :]
            else:
                self.records[at // copies] = record
        self._numbers = now + before[len(now) :]
        return not torn

    def first(self) -> Record | None:
        return self.records.get(0)
