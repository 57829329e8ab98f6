"""Codes, counters and sessions: what was said once is not heard twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scoutd.daemon.peer.sessions import WINDOW, Counters, Sessions, Speaker, reply_code, request_code, same

KEY = bytes(range(32))
WHO = Speaker("job", 1, "node-1")


def session(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_code_depends_on_key_kind_direction_and_every_byte() -> None:
    codes = {
        request_code(KEY, "Probe", b"head", b"body"),
        request_code(bytes(32), "Probe", b"head", b"body"),
        request_code(KEY, "Sync", b"head", b"body"),
        request_code(KEY, "Probe", b"headb", b"ody"),
        request_code(KEY, "Probe", b"head", b"bodY"),
        reply_code(KEY, "Probe", b"", b"head", b"body"),
        reply_code(KEY, "Probe", b"asked", b"head", b"body"),
    }
    assert len(codes) == 7
    assert same(request_code(KEY, "Probe", b"", b""), request_code(KEY, "Probe", b"", b""))


@given(st.lists(st.integers(-3, 3 * WINDOW), max_size=200))
def test_no_counter_is_taken_twice_and_none_from_below_the_window(offered: list[int]) -> None:
    counters, taken = Counters(), set()
    for counter in offered:
        highest = max(taken, default=0)
        expected = counter > 0 and counter not in taken and counter > highest - WINDOW
        assert counters.take(counter) == expected
        if expected:
            taken.add(counter)


def test_a_session_speaks_for_one_node_of_one_generation_only() -> None:
    sessions = Sessions()
    sessions.open(session(1), WHO)
    assert sessions.refuse(session(1), Speaker("job", 2, "node-1"), 1) == "session"
    assert sessions.refuse(session(1), Speaker("job", 1, "node-2"), 1) == "session"
    assert sessions.refuse(session(1), WHO, 1) == ""
    assert sessions.refuse(session(1), WHO, 1) == "counter"
    assert sessions.refuse(session(2), WHO, 1) == "session"


def test_greetings_push_out_greetings_only_and_numbers_are_bounded() -> None:
    sessions = Sessions(greeted=3, speaking=2)
    sessions.open(session(0), WHO)
    assert not sessions.refuse(session(0), WHO, 1)
    for number in range(1, 50):
        sessions.open(session(number), WHO)
    assert len(sessions) == 4
    assert sessions.refuse(session(0), WHO, 2) == ""
    assert sessions.refuse(session(1), WHO, 1) == "session"
    for number in (48, 49):
        assert not sessions.refuse(session(number), WHO, 1)
    assert sessions.refuse(session(0), WHO, 3) == "session"


def test_the_sessions_of_an_ended_job_are_forgotten() -> None:
    sessions = Sessions()
    sessions.open(session(1), WHO)
    sessions.open(session(2), Speaker("other", 1, "node-1"))
    sessions.forget("job")
    assert len(sessions) == 1
