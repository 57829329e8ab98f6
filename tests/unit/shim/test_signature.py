"""H_64: what it covers, what it does not look at, what it refuses."""

from __future__ import annotations

import copy
import random
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist

from scoutd.shim import signature as module
from scoutd.shim.signature import SCHEME_LANES, SCHEME_XXH3, nonfinite, scheme_of, signature, unavailable
from scoutd.shim.signature_bytes import memory, pieces
from tests.bench.signature import SMALL, every_bit, lanes_missed_double, missed, tensor

EVERY_DTYPE = sorted(
    (d for d in vars(torch).values() if isinstance(d, torch.dtype) and not str(d).startswith("torch.q")),
    key=str,
)
DTYPES = [d for d in dict.fromkeys(EVERY_DTYPE) if d is not getattr(torch, "bit", None)]


def of_bytes(dtype: torch.dtype, *shape: int, seed: int = 1) -> torch.Tensor:
    """Arbitrary bytes of any type, also of those that torch cannot fill."""
    chance = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 2, (*shape[:-1], shape[-1] * dtype.itemsize), generator=chance, dtype=torch.uint8)
    return raw.view(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_single_bits(dtype: torch.dtype) -> None:
    values, bits = tensor(256, dtype)
    assert missed(values, bits, every_bit(256, 8 * dtype.itemsize, 1)) == 0
    values, bits = tensor(SMALL, dtype)
    assert missed(values, bits, every_bit(SMALL, 8 * dtype.itemsize, 4099)) == 0


def test_sign_pairs_and_swaps() -> None:
    values, bits = tensor(SMALL, torch.float32)
    chance = random.Random(2)
    pairs = [tuple(chance.sample(range(SMALL), 2)) for _ in range(300)]
    assert missed(values, bits, iter([((a, -(1 << 31)), (b, -(1 << 31))) for a, b in pairs])) == 0
    exchanged = [((a, int(bits[a] ^ bits[b])), (b, int(bits[a] ^ bits[b]))) for a, b in pairs]
    assert missed(values, bits, iter(exchanged)) == 0


def test_the_bench_counts_what_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    values, bits = tensor(64, torch.float32)
    monkeypatch.setattr("tests.bench.signature.signature", lambda tensor: float(tensor.abs().sum()))
    assert missed(values, bits, iter([((1, -(1 << 31)),), ((2, 1 << 30),)])) == 1


def test_no_two_flips_cancel_in_the_lane_sum() -> None:
    assert lanes_missed_double(512) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(dtype: torch.dtype) -> None:
    values = of_bytes(dtype, 4, 6)
    assert signature(values) == signature(of_bytes(dtype, 4, 6)) != signature(of_bytes(dtype, 4, 6, seed=2))
    assert signature(values[:, 1:4]) == signature(of_bytes(dtype, 4, 6)[:, 1:4])
    assert signature(values[1:, 2:]) != signature(values[1:, 1:5])


def test_type_and_shape_count() -> None:
    zeros = torch.zeros(4, dtype=torch.int32)
    alike = [zeros, zeros.view(torch.float32), zeros.view(2, 2), zeros.view(1, 4), zeros.view(torch.int16)]
    alike += [torch.zeros(0, 3), torch.zeros(3, 0), torch.zeros(0), torch.zeros(()), torch.zeros(1)]
    assert len({signature(each) for each in alike}) == len(alike)


def test_layout_does_not_count() -> None:
    values = torch.randn(5, 6, 7)
    there = values.permute(2, 0, 1)
    assert signature(there) == signature(there.contiguous())
    assert signature(values[1:4, ::2]) == signature(values[1:4, ::2].clone())
    assert signature(torch.ones(1, 1).expand(9, 4)) == signature(torch.ones(9, 4))
    numbers = torch.randn(8, dtype=torch.complex64)
    assert signature(numbers.conj()) == signature(numbers.conj().resolve_conj()) != signature(numbers)
    assert signature(numbers.conj().imag) == signature(numbers.conj().imag.resolve_neg())
    assert signature(torch.arange(16).view(torch.uint8)[3:]) == signature(
        torch.arange(16).view(torch.uint8)[3:].clone()
    )


def test_bits_count_not_values() -> None:
    assert signature(torch.tensor([0.0])) != signature(torch.tensor([-0.0]))
    nans = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert signature(nans[:1]) != signature(nans[1:])
    assert signature(nans[:1]) == signature(nans[:1].clone())


def test_contiguous_tensors_are_not_copied() -> None:
    values = torch.randn(100)
    view = numpy.frombuffer(memory(values), dtype=numpy.float32)
    assert view.ctypes.data == values.data_ptr()
    assert not view.flags.writeable
    (piece,) = pieces(values, limit=16)
    assert piece.data_ptr() == values.data_ptr()


@pytest.mark.parametrize("shape", [(7, 5, 3), (1, 40, 2), (64, 1), (3, 2, 2, 2, 5)])
def test_copies_are_bounded(shape: tuple[int, ...]) -> None:
    values = (
        torch.arange(torch.Size(shape).numel()).reshape(shape[::-1]).permute(*reversed(range(len(shape))))
    )
    parts = list(pieces(values, limit=100))
    assert values.is_contiguous() or all(part.numel() <= 100 for part in parts)
    assert torch.equal(torch.cat(parts).view(torch.int64), values.contiguous().reshape(-1))


@dataclass
class Output:
    loss: torch.Tensor
    hidden: Any = None


class Color(Enum):
    RED = 1
    BLUE = 2


Pair = namedtuple("Pair", "a b")


def test_nests() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    nests: list[Any] = [
        one, [one], [[one]], [one, two], [two, one], [one, None], [one, two, None], {"a": one}, {"b": one},
        {"a": one, "b": two}, {"a": two, "b": one}, {1: one}, {"1": one}, Output(one), Output(one, two),
        None, [], {}, 0, 1, True, False, 1.0, -0.0, 0.0, 1j, "", "1", b"1", Color.RED, Color.BLUE, 2**70,
        torch.float32, torch.device("cpu"), float("nan"), float("inf"),
    ]  # fmt: skip
    signed = [signature(each) for each in nests]
    assert len(set(signed)) == len(signed)
    assert signed == [signature(copy.deepcopy(each)) for each in nests]
    assert signature(Pair(one, None)) == signature([one, None]) == signature((one, None))


def test_the_order_of_a_dictionary_does_not_count() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    assert signature({"a": one, "b": two}) == signature(OrderedDict(b=two, a=one))


def test_device_numbers_do_not_count() -> None:
    assert signature(torch.device("cuda", 1)) == signature(torch.device("cuda", 3))


class Foreign:
    pass


def cycle() -> list[Any]:
    nest: list[Any] = []
    nest.append(nest)
    return nest


@pytest.mark.filterwarnings("ignore")
def test_refusals() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2)
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    refused = [
        (torch.eye(3).to_sparse(), "layout sparse_coo"),
        (torch.eye(3).to_sparse_csr(), "layout sparse_csr"),
        (quantized, "quantized"),
        (torch.ones(3, device="meta"), "meta"),
        (fake, "fake"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        (torch.nn.parameter.UninitializedParameter(), "uninitialised"),
        (Foreign(), "Foreign"),
        (Output, "type"),
        (cycle(), "deeper"),
    ]
    for value, reason in refused:
        with pytest.raises(ValueError, match=reason):
            signature([torch.ones(1), value])
        with pytest.raises(ValueError, match=reason):
            scheme_of(value)
        with pytest.raises(ValueError, match=reason):
            nonfinite(value)


def test_wrappers_are_their_inner_tensors() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    one, two = torch.ones(2), torch.zeros(2)
    assert signature(TwoTensor(one, two)) == signature(TwoTensor(one.clone(), two.clone()))
    assert signature(TwoTensor(one, two)) != signature(TwoTensor(one, one))


@pytest.fixture
def mesh() -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def test_a_dtensor_is_its_local_shard(mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Shard

    local = torch.randn(3, 4)
    sharded = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    assert sharded.shape == (6, 4)
    assert signature(torch.nn.Parameter(sharded)) == signature(local)
    assert not nonfinite(sharded)


class Watched(torch.Tensor):
    """A user's class that notices whatever is done to it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"called {func}")


def test_the_trainer_is_not_touched() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 4))
    state, version = torch.get_rng_state(), weight._version
    watched = weight.detach().t().as_subclass(Watched)
    with torch.autocast("cpu", torch.bfloat16):
        assert signature(watched) == signature(weight.t()) == signature(weight.detach().t())
        assert not nonfinite(watched)
    assert scheme_of(watched) == SCHEME_XXH3
    assert weight._version == version
    assert weight.grad_fn is None
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    with torch.inference_mode():
        assert signature(torch.ones(3)[::2]) == signature(torch.ones(2))


FLOATS = [d for d in DTYPES if d.is_floating_point or d.is_complex]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nonfinite(dtype: torch.dtype, bad: float) -> None:
    if "float4" in str(dtype):
        assert not nonfinite(of_bytes(dtype, 8))
        return
    values = torch.ones(3, 50)
    assert not nonfinite(values.to(dtype))
    values[1, 7] = bad
    held = values.to(dtype)
    assert nonfinite(held) == (not bool(held.to(torch.complex64).isfinite().all()))
    assert nonfinite([None, {"a": held.t()}]) == nonfinite(held)
    assert not nonfinite(held[2:])


def test_finite_where_a_sum_overflows() -> None:
    assert not nonfinite(torch.full((100,), 3e38))
    assert not nonfinite([torch.full((100,), 2**62), torch.zeros(0), torch.tensor(True), torch.tensor(1.0)])
    assert nonfinite(torch.tensor(float("nan")))
    assert nonfinite(torch.tensor([1 + 1j, complex(0, float("inf"))]).conj())


def test_schemes() -> None:
    assert scheme_of(torch.ones(2)) == scheme_of([{"a": torch.ones(2)}, None]) == scheme_of(3) == SCHEME_XXH3
    assert SCHEME_LANES != SCHEME_XXH3


def test_without_xxhash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unavailable() == ""
    module._xxh3.cache_clear()
    monkeypatch.setitem(sys.modules, "xxhash", None)
    try:
        assert "not installed" in unavailable()
        with pytest.raises(RuntimeError, match="xxhash"):
            signature(torch.ones(1))
    finally:
        module._xxh3.cache_clear()
