"""What fuzzing found: one rank's broken file must not keep the observer from the others."""

from __future__ import annotations

import os

import pytest

from scoutd.daemon.observe.reader import RankFile
from scoutd.proto import shm
from tests.unit.daemon_observe.conftest import World


def test_a_file_that_is_cut_while_it_is_read(world: World) -> None:
    observer = world.observer()
    world.rank(0)
    broken = world.rank(1)
    observer.observe()
    os.truncate(broken.path, shm.COMMAND.offset)
    for _ in range(3):
        world.clock.advance(1.0)
        (job,) = observer.observe()
    assert [rank.rank for rank in job.report.ranks if rank.observed] == [0]
    assert any("rank-1" in text for text in job.warnings)


def test_a_file_that_is_cut_before_it_was_announced_to(world: World) -> None:
    """The command slot is gone when the observer wants to write there for the first time."""
    path = world.rank(0).path
    folder = os.open(path.parent, os.O_RDONLY)
    file = RankFile(path.name, folder, os.getuid())
    os.truncate(path, shm.COMMAND.offset)
    with pytest.raises(shm.LayoutError, match="cut short"):
        file.announce(os.getpid(), world.clock.now, 0)
    file.close()
    os.close(folder)


def test_a_command_slot_with_the_largest_sequence(world: World) -> None:
    writer = world.rank(0)
    largest = shm.SEQUENCE.pack((1 << 64) - 1)
    for copy in range(shm.COMMAND.copies):
        at = shm.COMMAND.position(0, copy)
        writer.view[at : at + len(largest)] = largest
    observer = world.observer()
    for _ in range(3):
        (job,) = observer.observe()
        world.clock.advance(1.0)
    assert [rank.rank for rank in job.report.ranks] == [0]
