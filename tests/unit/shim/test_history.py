"""HISTORY: the newest fingerprints of a group, from public calls and from the recorder."""

from __future__ import annotations

from scoutd.proto import shm
from scoutd.shim.calls import Calls
from scoutd.shim.groups import Groups, GroupState
from scoutd.shim.shmfile import ShmFile
from tests.unit.shim.reading import slots


def group(slot: int = 0, enqueued: int = 20) -> GroupState:
    state = GroupState(None, "0", [0, 1, 2, 3], slot, "gloo")
    state.highest = enqueued
    return state


def history(file: ShmFile) -> dict[int, int]:
    return {record.sequence: record.fingerprint for record in slots(file.path, shm.HISTORY)}


def test_the_newest_calls_are_kept(file: ShmFile) -> None:
    calls, state = Calls(file), group()
    for sequence in range(1, 21):
        calls.remember(state, sequence, sequence)
    assert history(file) == {sequence: sequence for sequence in range(5, 21)}


def test_what_only_the_recorder_saw_is_added_and_marked(file: ShmFile) -> None:
    calls, state = Calls(file), group()
    calls.remember(state, 2, 77)
    calls.recall(state, 2, "all_reduce|float32|64")
    calls.recall(state, 3, "all_reduce|float32|64")
    calls.recall(state, 4, "all_reduce|float32|64")
    found = history(file)
    assert found[2] == 77, "a public call knows more"
    assert found[3] == found[4]
    assert found[3] & shm.RECORDED


def test_the_recorder_takes_no_place_from_a_later_call_and_invents_none(file: ShmFile) -> None:
    calls, state = Calls(file), group()
    calls.remember(state, 20, 77)
    calls.recall(state, 4, "barrier||0")
    calls.recall(state, 21, "barrier||0")
    assert history(file) == {20: 77}


def test_a_group_in_a_used_slot_begins_without_history(file: ShmFile) -> None:
    calls = Calls(file)
    calls.remember(group(slot=0), 21, 77)
    meeting = Groups(file).meeting("new_group", [0, 1])
    assert meeting is not None
    assert meeting.slot == 0
    assert history(file) == {}
