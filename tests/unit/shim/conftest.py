from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scoutd.shim.coordinates import Coordinates
from scoutd.shim.shmfile import ShmFile


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ShmFile]:
    """A rank's file below a root of its own."""
    found = ShmFile(tmp_path / "scoutd")
    yield found
    found.remove()
    found.close()


@pytest.fixture
def coordinates(file: ShmFile) -> Coordinates:
    return Coordinates(file)
