from __future__ import annotations

import threading

from scoutd.proto import shm
from scoutd.proto.shm import Phase
from scoutd.shim.coordinates import Coordinates, encode
from tests.unit.shim.reading import slot, slots


def current(coordinates: Coordinates) -> tuple[Phase, str, int]:
    record = slot(coordinates.file.path, shm.PROGRESS)
    assert record is not None
    return Phase(record.phase), record.operation, record.waiting


def test_leaving_returns_to_what_encloses_and_then_to_between(coordinates: Coordinates) -> None:
    outer = coordinates.enter(Phase.FORWARD, encode("Net"))
    inner = coordinates.enter(Phase.COLLECTIVE, encode("all_reduce"), 1)
    assert current(coordinates) == (Phase.COLLECTIVE, "all_reduce", 1)
    coordinates.leave(inner)
    assert current(coordinates) == (Phase.FORWARD, "Net", 0)
    coordinates.leave(outer)
    assert current(coordinates) == (Phase.BETWEEN, "after forward", 0)


def test_what_came_before_is_named_after_a_collective(coordinates: Coordinates) -> None:
    coordinates.leave(coordinates.enter(Phase.COLLECTIVE, encode("all_reduce"), 1))
    assert current(coordinates) == (Phase.BETWEEN, "after all_reduce", 0)


def test_an_enclosing_scope_cuts_entries_whose_end_was_missed(coordinates: Coordinates) -> None:
    depth = coordinates.enter(Phase.CHECKPOINT, encode("torch.save"))
    coordinates.enter_hooked(coordinates.writer, Phase.FORWARD, encode("Net"))
    coordinates.leave(depth)
    assert coordinates.writer.stack == []


def test_a_repeated_root_cuts_its_stale_entry(coordinates: Coordinates) -> None:
    writer, root = coordinates.writer, encode("Net")
    coordinates.enter_hooked(writer, Phase.FORWARD, root)
    coordinates.enter_hooked(writer, Phase.FORWARD, encode("layers.0 (Block)"))  # raised in here
    coordinates.drop_repeated(writer, root)
    coordinates.enter_hooked(writer, Phase.FORWARD, root)
    coordinates.leave_hooked(writer, root)
    assert current(coordinates) == (Phase.BETWEEN, "after forward", 0)


def test_leaving_a_boundary_that_was_never_entered_changes_nothing(coordinates: Coordinates) -> None:
    coordinates.enter(Phase.FORWARD, encode("Net"))
    coordinates.leave_hooked(coordinates.writer, encode("other"))
    assert current(coordinates) == (Phase.FORWARD, "Net", 0)


def test_ordinals_grow_over_all_threads_and_every_thread_has_its_slot(coordinates: Coordinates) -> None:
    coordinates.enter(Phase.FORWARD, encode("main"))
    done = threading.Event()
    published = threading.Event()

    def other() -> None:
        coordinates.enter(Phase.BACKWARD, encode("other"))
        published.set()
        done.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert published.wait(10)
    records = slots(coordinates.file.path, shm.PROGRESS)
    done.set()
    thread.join(10)
    assert [record.operation for record in records] == ["main", "other"]
    assert records[0].ordinal < records[1].ordinal
    assert records[0].thread != records[1].thread


def test_the_slot_of_an_ended_thread_is_used_again(coordinates: Coordinates) -> None:
    for number in range(3 * shm.PROGRESS.slots):
        name = encode(f"thread {number}")
        thread = threading.Thread(target=coordinates.enter, args=(Phase.FORWARD, name))
        thread.start()
        thread.join(10)
    assert coordinates.file.dropped == 0
    operations = {record.operation for record in slots(coordinates.file.path, shm.PROGRESS)}
    assert f"thread {3 * shm.PROGRESS.slots - 1}" in operations


def test_without_a_free_slot_the_publication_is_counted_as_dropped(coordinates: Coordinates) -> None:
    coordinates.writer.slot = -1
    coordinates.enter(Phase.FORWARD, encode("Net"))
    assert coordinates.file.dropped == 1
    assert slots(coordinates.file.path, shm.PROGRESS) == []


def test_long_operations_are_cut_at_a_characters_border(coordinates: Coordinates) -> None:
    coordinates.enter(Phase.FORWARD, encode("ä" * 60))
    assert current(coordinates)[1] == "ä" * 48


def test_cost_is_estimated_from_samples(coordinates: Coordinates) -> None:
    operation = encode("Net")
    for _ in range(200):
        coordinates.publish(coordinates.writer, Phase.FORWARD, operation, 0)
    assert coordinates.cost_ns > 0
    assert coordinates.last_ordinal == 200
