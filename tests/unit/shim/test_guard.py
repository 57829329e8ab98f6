from __future__ import annotations

from scoutd.shim.guard import LIMIT, Guard


def raising() -> int:
    raise ValueError("odd argument")


def test_an_error_is_counted_and_replaced_by_the_fallback() -> None:
    guard = Guard()
    assert guard.run("modules", raising, 7) == 7
    assert guard.errors == 1
    assert guard.reasons == {"modules": "ValueError: odd argument"}
    assert guard.disabled == ""


def test_a_part_that_fails_repeatedly_is_off_and_named_and_the_others_go_on() -> None:
    guard = Guard()
    for _ in range(LIMIT):
        guard.run("modules", raising, 0)
    assert guard.disabled == "modules"
    assert guard.run("modules", lambda: 1, 0) == 0
    assert guard.run("optimizer", lambda: 1, 0) == 1


def test_silence_switches_everything_off_without_calling_it_a_failure() -> None:
    guard = Guard()
    guard.part("modules")
    guard.silence()
    assert guard.run("modules", lambda: 1, 0) == 0
    assert guard.disabled == ""
