"""What an all_to_all publishes of its splits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scoutd.proto import shm
from scoutd.shim.splits import packed_splits

CALL = dict(zip(shm.Call._fields, [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0, "", "", "", ""], strict=False))


def told(operation: str, size: int, **given: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As a reader of CALLS sees them."""
    packed = packed_splits(operation, given, size)
    plain = shm.CALLS.codec.pack(shm.Call(**CALL))
    call = shm.CALLS.codec.unpack(plain + packed)
    return call.sends, call.receives


def test_rows_count_in_elements() -> None:
    found = told(
        "all_to_all_single",
        3,
        input=torch.ones(6, 4),
        output=torch.ones(3, 4),
        input_split_sizes=[1, 2, 3],
        output_split_sizes=[1, 0, 2],
    )
    assert found == ((4, 8, 12), (4, 0, 8))


def test_without_splits_rows_are_dealt_out_evenly() -> None:
    assert told("all_to_all_single", 3, input=torch.ones(6), output=torch.ones(9)) == ((2,) * 3, (3,) * 3)


def test_the_functional_call_has_one_tensor() -> None:
    given = {"self": torch.ones(4, 2), "input_split_sizes": [3, 1], "output_split_sizes": [2, 5]}
    assert told("all_to_all_single", 2, **given) == ((6, 2), (4, 10))


def test_lists_of_tensors() -> None:
    given = {
        "input_tensor_list": [torch.ones(2, 2), torch.ones(1)],
        "output_tensor_list": [torch.ones(3), torch.ones(0)],
    }
    assert told("all_to_all", 2, **given) == ((4, 1), (3, 0))


def test_of_large_groups_the_first_members_are_told() -> None:
    sends, receives = told("all_to_all_single", 40, input=torch.ones(40), output=torch.ones(80))
    assert (sends, receives) == ((1,) * 16, (2,) * 16)


@pytest.mark.parametrize("given", [{}, {"input": torch.tensor(1.0)}, {"input": None, "output": None}])
def test_what_is_not_understood_is_not_told(given: dict[str, Any]) -> None:
    assert told("all_to_all_single", 2, **given) == ((), ())
    assert told("all_reduce", 2, **given) == ((), ())


def test_a_count_that_does_not_fit_is_unknown() -> None:
    packed = shm.pack_splits((1 << 33, 5), (7,))
    call = shm.CALLS.codec.unpack(shm.CALLS.codec.pack(shm.Call(**CALL)) + packed)
    assert call.sends == (shm.UNKNOWN_U32, 5)
