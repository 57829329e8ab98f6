from __future__ import annotations

from typing import Any

import pytest

from scoutd.proto.shm import UNKNOWN_U64
from scoutd.shim import recorder


def entry(sequence: int, retired: bool, **more: Any) -> dict[str, Any]:
    """As torch 2.13 dumps it for Gloo."""
    return {
        "collective_seq_id": sequence,
        "op_id": sequence,
        "retired": retired,
        "is_p2p": False,
        "process_group": ("0", "default_pg"),
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[2, 3]],
        "input_dtypes": ["Float"],
        "time_created_ns": 900,
        **more,
    }


def parse(*entries: dict[str, Any]) -> list[recorder.Entry]:
    return recorder.parse({"entries": list(entries)}, now_wall_ns=1000)


def test_an_entry_speaks_the_language_of_public_calls() -> None:
    assert parse(entry(4, False, op_id=6)) == [
        recorder.Entry("0", 4, False, 100, "all_reduce", "float32", "[2, 3]", 6, 2)
    ]


@pytest.mark.parametrize(
    ("recorded", "public"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("nccl:_all_gather_base", "all_gather_into_tensor"),
        ("nccl:_reduce_scatter_base", "reduce_scatter_tensor"),
        ("nccl:all_to_all", "all_to_all"),
        ("gloo:barrier", "barrier"),
        ("gloo:something_new", "something_new"),
    ],
)
def test_operations_are_canonical(recorded: str, public: str) -> None:
    assert recorder.canonical_operation(recorded) == public


def test_a_barrier_has_no_elements() -> None:
    assert parse(entry(1, True, input_sizes=[], input_dtypes=[]))[0].numel == 0


def test_inputs_that_differ_by_nature_are_not_compared() -> None:
    assert parse(entry(1, True, profiling_name="gloo:scatter"))[0].numel == UNKNOWN_U64


def test_entries_of_a_destroyed_group_do_not_speak_for_its_namesake() -> None:
    old, new = entry(7, True, pg_id=0), entry(2, False, pg_id=1)
    assert [e.sequence for e in recorder.of_living_groups(parse(old, new), {"0": 2})] == [2]
    assert recorder.of_living_groups(parse(old), {"0": 0}) == [], "the new one has not begun"
    assert recorder.of_living_groups(parse(old), {}) == []


def test_p2p_and_malformed_entries_are_left_out() -> None:
    assert parse(entry(1, True, is_p2p=True), entry(0, True), {"retired": False}) == []


@pytest.mark.parametrize(
    ("states", "retired"),
    [
        ([(1, True), (2, True)], 2),
        ([(1, True), (2, False), (3, True)], 1),  # a later one finished first
        ([(5, False), (6, False)], 0),
        ([(7, True)], 7),  # the ring has lost the older ones
    ],
)
def test_retired_is_the_highest_below_everything_unfinished(
    states: list[tuple[int, bool]], retired: int
) -> None:
    assert recorder.retired_by_group(parse(*(entry(*state) for state in states))) == {"0": retired}
