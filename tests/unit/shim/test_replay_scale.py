"""Seeded values are about as large as the real ones, and equal on ranks whose real ones differ."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from scoutd.shim.replay import templates
from scoutd.shim.replay.call import Call, learn, make
from scoutd.shim.replay.scale import Scale, measured, read, written
from scoutd.shim.replay.seeds import Source
from tests.unit.shim.test_replay_roster import Net, Rank

CPU = torch.device("cpu")
SOURCE = Source(1, 2)


def seeded(real: torch.Tensor) -> torch.Tensor:
    """What a replay is given in the place of ``real``."""
    return make(learn(nn.Identity(), (real,), {}), SOURCE, CPU).tensors[0]


def rms(tensor: torch.Tensor) -> float:
    return tensor.detach().double().square().mean().sqrt().item()


@pytest.mark.parametrize("size", [1e-6, 3e-3, 1.0, 47.0, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_seeded_values_have_the_size_of_real_ones(size: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    real = (torch.randn(64, 64) * size).to(dtype)
    made = seeded(real)
    assert (made.dtype, made.shape) == (dtype, real.shape)
    assert 1 / 1.6 < rms(made) / size < 1.6
    assert bool((made < 0).any())


def test_what_was_never_negative_is_not_seeded_so() -> None:
    torch.manual_seed(1)
    made = seeded(torch.rand(64, 64))
    assert bool((made >= 0).all())
    assert 1 / 1.6 < rms(made) / math.sqrt(1 / 3) < 1.6


def test_scales_change_the_exponent_of_values_and_no_other_bit() -> None:
    plain = SOURCE.floats("x", (1000,), torch.float32, CPU)
    scaled = SOURCE.floats("x", (1000,), torch.float32, CPU, Scale(-20))
    assert torch.equal(plain, scaled * 2.0**20)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
@pytest.mark.parametrize("exponent", [-(10**9), -200, 200, 10**400])
def test_no_scale_makes_values_overflow_or_vanish(dtype: torch.dtype, exponent: int) -> None:
    made = SOURCE.floats("x", (1000,), dtype, CPU, read([exponent, False]))
    assert bool(torch.isfinite(made).all())
    assert bool((made != 0).any())


@pytest.mark.parametrize(
    "real", [torch.zeros(3), torch.empty(0, 3), torch.tensor([1.0, math.nan]), torch.tensor([math.inf])]
)
def test_what_has_no_scale_is_seeded_as_before(real: torch.Tensor) -> None:
    assert measured(real) is None
    assert read(written(measured(real))) == Scale()


@pytest.mark.parametrize("hidden", [torch.finfo(torch.float32).min, -1e9, -1e4, -math.inf])
def test_a_mask_that_is_added_to_scores_does_not_drown_them(hidden: float) -> None:
    mask = torch.zeros(2, 1, 8, 8).masked_fill(torch.ones(8, 8, dtype=torch.bool).triu(1), hidden)
    assert measured(mask) is None
    assert measured(mask.abs().nan_to_num(posinf=1.0)) is not None


def test_of_a_large_tensor_a_sample_is_looked_at_without_copying_the_rest() -> None:
    real = torch.zeros(3, 1200, 1000)
    real[:1, :1048, :] = 4.0
    looked: list[int] = []

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in given:
                looked.append(out.numel())
            return out

    turned = real.transpose(1, 2).contiguous().transpose(1, 2)
    given = {each.untyped_storage().data_ptr() for each in (real, turned)}
    for tensor in (real, turned, real[:1].expand(3, 1200, 1000)):
        with Looking():
            assert measured(tensor) == Scale(2, True)
    assert 0 < max(looked) <= 1 << 20


def test_under_a_transform_nothing_is_looked_at() -> None:
    seen = []
    torch.func.vmap(lambda x: (seen.append(measured(x)), x)[1])(torch.ones(3, 2))
    assert seen == [None]


def test_the_first_ranks_scale_counts_and_no_identity_changes_twice() -> None:
    torch.manual_seed(1)
    ranks = [Rank(0, Net()), Rank(1, Net()), Rank(2, Net())]
    for rank, factor in zip(ranks, (1.0, 64.0, 4096.0), strict=True):
        with torch.no_grad():
            rank.model.get_submodule("embed").weight.mul_(factor)  # type: ignore[operator, union-attr]
        rank.call(3)
    first, *others = ([each.recipe for each in rank.roster.recipes] for rank in ranks)
    assert others[0] == others[1]
    assert others[0][2] != first[2]
    for rank in ranks[1:]:
        rank.roster.adopt(templates.unpacked(ranks[0].told[0]))
        assert [each.recipe for each in rank.roster.recipes] == first
    block = [rank.roster.recipes[2].call for rank in ranks]
    made = [make(call, SOURCE, CPU).tensors[0] for call in block if call is not None]
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])
    assert rms(made[0]) < 16


def test_a_scale_that_is_none_is_refused() -> None:
    call = learn(nn.Identity(), (torch.ones(2),), {})
    nodes = json.loads(call.form)
    nodes[0][1][0][7] = ["many", True]
    with pytest.raises(ValueError, match="many"):
        make(Call(json.dumps(nodes)), SOURCE, CPU)
