"""Reads what the shim wrote, the way the agent does: from the file, never from the shim's objects."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from scoutd.proto import shm

Record = TypeVar("Record")


def slot(path: Path, section: shm.Section[Record], index: int = 0) -> Record | None:
    """The newest record of one slot, None if it was never written."""
    return shm.read(path.read_bytes(), 0, section, index)


def slots(path: Path, section: shm.Section[Record]) -> list[Record]:
    """Every written record of a section, in slot order."""
    data = path.read_bytes()
    found = (shm.read(data, 0, section, index) for index in range(section.slots))
    return [record for record in found if record is not None]
