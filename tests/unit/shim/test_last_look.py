"""What is published of a collective that failed where no public call shows it."""

from __future__ import annotations

import pytest

from scoutd.proto import shm
from scoutd.shim import recorder
from scoutd.shim.calls import Calls, make_template
from scoutd.shim.coordinates import Coordinates
from scoutd.shim.groups import Groups
from scoutd.shim.guard import Guard
from scoutd.shim.notes import of_transport
from scoutd.shim.publisher import Publisher
from scoutd.shim.shmfile import ShmFile
from scoutd.shim.works import Works
from tests.unit.shim.reading import slots


@pytest.fixture
def calls(file: ShmFile) -> Calls:
    return Calls(file)


@pytest.fixture
def publisher(
    file: ShmFile, coordinates: Coordinates, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> Publisher:
    """Its recorder knows two collectives of a group, both over."""
    groups = Groups(file)
    state = groups.meeting("0", [0, 1])
    assert state is not None
    state.calls = 8
    entries = [recorder.Entry("0", k, True, 0, "all_reduce", "float32", "[68]", 68, offset=0) for k in (7, 8)]
    monkeypatch.setattr(recorder, "dump", lambda: list(entries))
    return Publisher(file, coordinates, groups, calls, Works(calls, coordinates), Guard())


def pending(file: ShmFile) -> list[int]:
    dumped = slots(file.path, shm.RECORDER)[-1].dumped_ns if slots(file.path, shm.RECORDER) else 0
    return [record.sequence for record in slots(file.path, shm.PENDING) if record.dump_ns >= dumped]


def test_the_newest_recorded_collective_is_the_one_that_failed(file: ShmFile, publisher: Publisher) -> None:
    publisher.last_look()
    assert pending(file) == [8]


def test_it_stays_although_the_thread_goes_on(file: ShmFile, publisher: Publisher) -> None:
    publisher.last_look()
    for second in range(1, 5):
        publisher.beat(second * 10**12)
    assert pending(file) == [8]


def test_a_public_call_that_failed_says_more(file: ShmFile, publisher: Publisher, calls: Calls) -> None:
    template = make_template(shm.CallKind.P2P_RECV, 7, "recv", "float32", 8, "", "[8]")
    call = calls.begin(7, 1, template, 1, 100)
    assert call is not None
    calls.end(call, shm.CallState.FAILED)
    publisher.last_look()
    assert pending(file) == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError(
                "[/torch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
            ),
            True,
        ),
        (RuntimeError("NCCL error: remote process exited"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ConnectionResetError("connection reset by peer"), False),
    ],
)
def test_whose_exception_it_is(error: BaseException, told: bool) -> None:
    assert of_transport(error) is told
