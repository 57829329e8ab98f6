from __future__ import annotations

import pytest

from scoutd.daemon.cli.ranges import compress, name


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0, 1"),
        ([2, 0, 1], "0–2"),
        ([0, 2, 3, 4, 9], "0, 2–4, 9"),
        ([5, 5, 5], "5"),
        (range(4095), "0–4094"),
    ],
)
def test_runs_are_joined(ranks: list[int], text: str) -> None:
    assert compress(ranks) == text


def test_scattered_ranks_end_in_a_count() -> None:
    assert compress(range(0, 4096, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, … and 2040 more"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "nobody"),
        ([7], "rank 7"),
        ([0, 2, 3, 4], "ranks 0, 2–4"),
        (range(4095), "4095 ranks 0–4094"),
    ],
)
def test_ranks_are_named(ranks: list[int], text: str) -> None:
    assert name(ranks) == text
