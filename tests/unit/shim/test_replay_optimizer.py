"""An optimizer is replayed on a slice: equal for equal state, refused with a reason, never stepped itself."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.optimizer import register_optimizer_step_post_hook

from scoutd.proto.replay import Part, RecipeKind, RecipeState
from scoutd.shim.replay import peers
from scoutd.shim.replay.copies import Memo, copied
from scoutd.shim.replay.recipes import Peers, Recipe
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.slicerun import SLICE
from scoutd.shim.replay.trial import replayed

KEY = 40


def trained(kind: Any, steps: int = 2, shape: tuple[int, ...] = (6, 4), **options: Any) -> Any:
    """An optimizer that has stepped, and its parameter (whose only owner it is)."""
    torch.manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(shape))
    optimizer = kind([parameter], **options)
    for _ in range(steps):
        parameter.grad = torch.randn(shape)
        optimizer.step()
    return optimizer


def recipe_of(optimizer: Any) -> Recipe:
    recipe = Recipe(0, RecipeKind.OPTIMIZER, "optimizer", "optimizer", weakref.ref(optimizer))
    recipe.peers = Peers((0,))
    recipe.state = RecipeState.READY
    return recipe


def replay(optimizer: Any, key: int = KEY) -> Any:
    return replayed(recipe_of(optimizer), key, key)


CLASSES = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.1, "foreach": True}),
    (torch.optim.AdamW, {"lr": 0.1}),
    (torch.optim.AdamW, {"lr": 0.1, "foreach": True}),
    (torch.optim.Adam, {"lr": 0.1, "fused": True}),
    (torch.optim.Adam, {"lr": torch.tensor(0.1)}),
    (torch.optim.RMSprop, {"lr": 0.1}),
    (torch.optim.Adagrad, {"lr": 0.1}),
]


@pytest.mark.parametrize(("kind", "options"), CLASSES)
def test_equal_state_gives_equal_steps_and_the_optimizer_is_untouched(kind: Any, options: Any) -> None:
    one, other = trained(kind, **options), trained(kind, **options)
    before = copy.deepcopy(one.state_dict())
    values = one.param_groups[0]["params"][0].clone()
    hooked: list[int] = []
    one.register_step_post_hook(lambda *_: hooked.append(1))
    handle = register_optimizer_step_post_hook(lambda *_: hooked.append(1))
    try:
        first, second = replay(one), replay(other)
    finally:
        handle.remove()
    assert first[9:15] == second[9:15]
    assert first.signed == 1 << Part.INPUT | 1 << Part.PARAMETER | 1 << Part.OPTIMIZER
    assert first.differing == first.nonfinite == 0
    assert torch.equal(values, one.param_groups[0]["params"][0])
    assert repr(before) == repr(one.state_dict())
    assert hooked == []


def test_corrupt_state_shows_in_the_step_alone_and_a_corrupt_parameter_in_both() -> None:
    healthy = replay(trained(torch.optim.AdamW))
    optimizer = trained(torch.optim.AdamW)
    parameter = optimizer.param_groups[0]["params"][0]
    optimizer.state[parameter]["exp_avg"].view(torch.int32)[2, 1] ^= 1
    state = replay(optimizer)
    assert (state.input, state.parameter) == (healthy.input, healthy.parameter)
    assert state.optimizer != healthy.optimizer
    parameter.detach().view(torch.int32)[0, 0] ^= 1
    both = replay(optimizer)
    assert both.parameter != healthy.parameter


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_shard_is_stepped_with_its_real_state(alone: None) -> None:
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(torch.nn.Linear(4, 6, bias=False), mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    recipe = recipe_of(optimizer)
    recipe.shard = True
    healthy, seeded = replayed(recipe, KEY, KEY), replay(optimizer)
    assert healthy.signed == seeded.signed
    state = optimizer.state[model.weight]["exp_avg"].to_local()  # type: ignore[attr-defined]
    state.view(torch.int32)[2, 1] ^= 1 << 20
    sick = replayed(recipe, KEY, KEY)
    assert (sick.input, sick.parameter) == (healthy.input, healthy.parameter)
    assert sick.optimizer != healthy.optimizer
    assert replay(optimizer)[9:15] == seeded[9:15]  # whose state is invented
    with torch.no_grad():
        model.weight.to_local().view(torch.int32)[0, 0] ^= 1  # type: ignore[operator]
    assert replayed(recipe, KEY, KEY).parameter != healthy.parameter
    assert model.weight.grad is not None


def test_a_whole_parameter_has_no_shard() -> None:
    optimizer = trained(torch.optim.SGD, lr=0.1)
    recipe = recipe_of(optimizer)
    recipe.shard = True
    with pytest.raises(Refusal, match="no shard"):
        replayed(recipe, KEY, KEY)


@pytest.mark.parametrize(
    ("shape", "rank", "replicas"),
    [((2, 3), 4, (1, 4)), ((3, 2), 0, (0, 2, 4)), ((6,), 4, (4,)), ((2, 3), 9, (9,))],
)
def test_replicas_of_a_shard_lie_along_the_first_axis_of_hsdp(
    shape: tuple[int, ...], rank: int, replicas: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = SimpleNamespace(mesh=torch.arange(6).reshape(shape))
    monkeypatch.setattr(peers, "mesh_of", lambda _: mesh)
    assert peers.replicas_of(torch.nn.Linear(1, 1), rank) == Peers(replicas)


def test_a_slice_is_bounded_and_the_parameter_rotates_with_the_key() -> None:
    large = trained(torch.optim.SGD, shape=(SLICE // 8, 64), lr=0.1)
    parameter = large.param_groups[0]["params"][0]
    before = replay(large)
    with torch.no_grad():
        parameter[-1] += 1  # beyond the slice
    assert replay(large).parameter == before.parameter
    with torch.no_grad():
        parameter[0] += 1
    assert replay(large).parameter != before.parameter
    several = torch.optim.SGD([torch.nn.Parameter(torch.full((4,), float(k))) for k in range(4)], lr=0.1)
    assert len({replay(several, key).parameter for key in range(40)}) == 4


def test_a_scheduler_in_front_of_the_optimizer_does_not_hear_of_it() -> None:
    optimizer = trained(torch.optim.SGD, lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    replay(optimizer)
    assert not getattr(optimizer, "_opt_called", False)


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        (lambda: torch.optim.LBFGS([torch.nn.Parameter(torch.ones(4))]), "closure"),
        (
            lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(4), requires_grad=False)], lr=1.0),
            "no param",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_replayed_is_refused(optimizer: Any, reason: str) -> None:
    made = optimizer()
    with pytest.raises((Refusal, TypeError), match=reason):
        replay(made)


def test_copies_share_nothing_that_can_change() -> None:
    class Thing:
        def __init__(self) -> None:
            self.items = [1, {"a": torch.ones(2)}]

    thing, memo = Thing(), Memo()
    made = copied({"x": thing, "y": (thing, thing.items)}, memo)
    assert made["x"] is made["y"][0]
    assert made["y"][1] is made["x"].items
    assert made["x"].items[1]["a"] is not thing.items[1]["a"]  # type: ignore[index]


def test_a_process_group_is_never_copied() -> None:
    import torch.distributed as dist

    class Holder:
        def __init__(self) -> None:
            self.store = dist.HashStore()

    with pytest.raises(Refusal, match="HashStore"):
        copied(Holder(), Memo())
