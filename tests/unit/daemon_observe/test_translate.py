"""Records of shared memory → evidence."""

from __future__ import annotations

from scoutd.agent.evidence import CallKind, CallState, Fingerprints, Members, Source
from scoutd.daemon.observe import translate
from scoutd.proto import shm
from tests.unit.daemon_observe.writer import CALL, COORDINATE, GROUP

NOW = 10_000


def counters(sequence: int, group: int = 7, retired: int = shm.UNKNOWN_U64) -> dict[int, shm.Counters]:
    return {0: shm.Counters(group, sequence, retired, NOW - 50)}


def test_every_phase_state_and_kind_has_a_name_in_the_evidence() -> None:
    assert set(translate.PHASES) == set(shm.Phase)
    assert set(translate.STATES) == set(shm.CallState) - {shm.CallState.FREE}
    assert set(translate.KINDS) == set(shm.CallKind)
    assert set(translate.SOURCES) == set(shm.NoteSource)


def test_a_stamp_of_the_future_has_no_age() -> None:
    (coordinate,) = translate.coordinates([COORDINATE._replace(entered_ns=NOW + 5)], NOW)
    assert coordinate.age_ns == 0


def test_free_slots_and_unknown_numbers_are_no_calls() -> None:
    records = [CALL._replace(state=shm.CallState.FREE), CALL._replace(state=9), CALL._replace(kind=9)]
    assert translate.public_calls(records, NOW) == []


def test_only_point_to_point_calls_have_a_peer_and_a_tag() -> None:
    send = CALL._replace(kind=shm.CallKind.P2P_SEND, peer=3, tag=5, entered_ns=1)
    collective, found = translate.public_calls([send, CALL], NOW)
    assert (found.kind, found.peer, found.tag) == (CallKind.P2P_SEND, 3, 5)
    assert (collective.peer, collective.tag) == (None, None)


def test_a_finished_call_waits_for_nobody() -> None:
    done = CALL._replace(state=shm.CallState.DONE, left_ns=NOW - 10, waiting=1)
    (call,) = translate.public_calls([done], NOW)
    assert (call.state, call.waiting, call.left_age_ns) == (CallState.DONE, False, 10)


def test_sizes_that_may_differ_are_not_compared() -> None:
    unknown = CALL._replace(numel=shm.UNKNOWN_U64)
    uneven = CALL._replace(operation="all_to_all_single", sequence=4)
    sizes = [call.fingerprint.numel for call in translate.public_calls([CALL, unknown, uneven], NOW)]
    assert sorted(sizes, key=str) == [16, None, None]


def test_a_group_without_counter_has_entered_nothing() -> None:
    (group,) = translate.groups({0: GROUP}, {}, [], NOW)
    assert (group.enqueued, group.retired, group.as_of_age_ns) == (0, None, NOW)
    assert group.members == Members(((0, 1, 4),))


def test_a_public_call_is_newer_than_the_counter() -> None:
    calls = translate.public_calls([CALL._replace(sequence=9, entered_ns=NOW - 20)], NOW)
    (group,) = translate.groups({0: GROUP}, counters(8, retired=7), calls, NOW)
    assert (group.enqueued, group.retired, group.as_of_age_ns) == (9, 7, 20)
    (group,) = translate.groups({0: GROUP}, counters(11), calls, NOW)
    assert (group.enqueued, group.as_of_age_ns) == (11, 50)


def test_the_counter_of_another_group_in_the_slot_is_ignored() -> None:
    (group,) = translate.groups({0: GROUP}, counters(5, group=8), [], NOW)
    assert group.enqueued == 0


def test_destroyed_groups_are_gone_and_truncated_ones_have_no_members() -> None:
    identities = {0: GROUP._replace(destroyed=1), 1: GROUP._replace(group=8, truncated=1)}
    (group,) = translate.groups(identities, {}, [], NOW)
    assert (group.group, group.members) == (8, None)


def test_a_group_that_contradicts_itself_has_no_members() -> None:
    huge = GROUP._replace(size=1 << 31, runs=((0, 1, 1 << 31),))
    for group in (huge, GROUP._replace(size=5)):
        (view,) = translate.groups({0: group}, {}, [], NOW)
        assert view.members is None


def test_notes_are_ordered_by_time() -> None:
    note = shm.Note(NOW - 5, 1, shm.NoteSource.WATCHDOG, "RuntimeError", "boom", "a.py:1 in f", "")
    found = translate.notes([note, note._replace(at_ns=NOW - 9, source=77)], NOW)
    assert [(n.age_ns, n.source) for n in found] == [(9, "EXCEPTION"), (5, "WATCHDOG")]


S = 1_000_000_000


def recorded(sequence: int) -> list[shm.Pending]:
    return [shm.Pending(7 * S, CALL.group, sequence, 2 * S, 16, "all_reduce", "float32", "[16]")]


def test_work_that_was_dropped_stays_pending_while_the_recorder_has_it() -> None:
    done = CALL._replace(state=shm.CallState.DONE, entered_ns=2 * S, left_ns=3 * S)
    pending = translate.recorder_calls(recorded(CALL.sequence), 7 * S, 9 * S)
    (call,) = translate.merge_calls(translate.public_calls([done], 9 * S), pending, 2 * S)
    assert (call.state, call.waiting, call.source) == (CallState.PENDING, False, Source.PUBLIC)
    assert call.fingerprint.argument == CALL.argument


def test_a_call_that_ended_after_the_dump_has_ended() -> None:
    done = CALL._replace(state=shm.CallState.DONE, entered_ns=2 * S, left_ns=8 * S)
    pending = translate.recorder_calls(recorded(CALL.sequence), 7 * S, 9 * S)
    (call,) = translate.merge_calls(translate.public_calls([done], 9 * S), pending, 2 * S)
    assert call.state is CallState.DONE


def test_a_dump_that_is_being_written_counts_and_an_older_one_does_not() -> None:
    assert [c.sequence for c in translate.recorder_calls(recorded(5), 6 * S, 9 * S)] == [5]
    assert translate.recorder_calls(recorded(5), 8 * S, 9 * S) == []


def test_a_history_is_what_the_group_called_last() -> None:
    records = [shm.History(7, 40 + k, 100 + k) for k in range(3)]
    records += [shm.History(7, 45, 1), shm.History(9, 1, 2)]  # an earlier group of the slot, another group
    (view,) = translate.with_histories(translate.groups({0: GROUP}, counters(42), [], NOW), records)
    assert view.history == Fingerprints(42, (*[None] * 13, 100, 101, 102))


def test_a_group_without_history_has_none() -> None:
    (view,) = translate.with_histories(translate.groups({0: GROUP}, counters(42), [], NOW), [])
    assert view.history is None
