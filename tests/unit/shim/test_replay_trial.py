"""A module is replayed on a twin: what comes out, what is refused, and that the original never notices."""

from __future__ import annotations

import random
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from scoutd.proto.replay import Part, RecipeKind, RecipeState
from scoutd.shim.replay import seams
from scoutd.shim.replay.blockrun import Outcome
from scoutd.shim.replay.call import learn
from scoutd.shim.replay.recipes import Peers, Recipe
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.trial import _record, replayed

KEY = 40


def recipe_of(module: nn.Module, *args: Any, **kwargs: Any) -> Recipe:
    """A recipe that has learnt this call."""
    recipe = Recipe(0, RecipeKind.BLOCK, "blocks.0 (Block)", "blocks.0", weakref.ref(module))
    recipe.peers = Peers((0,))
    recipe.learn(learn(module, args, kwargs))
    return recipe


def replay(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return replayed(recipe_of(module, *args, **kwargs), KEY, KEY)


@pytest.fixture
def passage() -> Iterator[list[seams.Passage]]:
    yield seams.passages
    seams.passages.clear()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(1)
        return x + self.dropout(self.linear(self.norm(x)))  # type: ignore[no-any-return]


def input_of(size: int = 6) -> torch.Tensor:
    return torch.zeros(size, 8, requires_grad=True)


def test_two_modules_with_equal_parameters_replay_alike_whatever_else_differs() -> None:
    torch.manual_seed(1)
    one, other = Block(), Block()
    other.load_state_dict(one.state_dict())
    other(torch.randn(4, 8))  # other running statistics, another state of the random generators
    random.random()
    first = replay(one, input_of())
    second = replay(other, input_of())
    assert first[9:15] == second[9:15]
    assert first.differing == first.nonfinite == 0
    assert first.signed == 0b11111


def test_other_parameters_another_key_and_zero_parameters_change_the_output() -> None:
    block = Block()
    recipe = recipe_of(block, input_of())
    first = replayed(recipe, KEY, KEY)
    assert replayed(recipe, KEY, KEY)[9:15] == first[9:15]
    assert replayed(recipe, KEY + 1, KEY).output != first.output
    with torch.no_grad():
        for parameter in block.linear.parameters():
            parameter.zero_()
    zeroed = replayed(recipe, KEY, KEY)
    assert (zeroed.input, zeroed.output != first.output) == (first.input, True)
    assert zeroed.parameter != first.parameter


def test_the_module_and_the_surroundings_are_as_before() -> None:
    block = Block()
    block.register_forward_hook(lambda *_: pytest.fail("the user's hook"))
    block.linear.weight.register_hook(lambda _: pytest.fail("the user's hook"))
    before = {name: tensor.clone() for name, tensor in block.state_dict().items()}
    names, generator, python = set(vars(block)), torch.get_rng_state(), random.getstate()
    replay(block, input_of())
    assert all(torch.equal(before[name], tensor) for name, tensor in block.state_dict().items())
    assert block.linear.weight.grad is None
    assert block.calls == []
    assert set(vars(block)) == names
    assert torch.equal(generator, torch.get_rng_state())
    assert random.getstate() == python
    assert torch.is_grad_enabled()


def test_half_of_the_batch_is_replayed_and_all_of_it_where_half_does_not_do() -> None:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.reshape(6, -1))  # type: ignore[no-any-return]

    block, pairs = Block(), Pairs()
    half, full = recipe_of(block, input_of()), recipe_of(pairs, input_of())
    assert replayed(half, KEY, KEY)
    assert replayed(full, KEY, KEY)
    assert (half.half, full.half) == (True, False)
    assert half.recipe != full.recipe


def test_masks_and_numbers_are_passed_on(passage: list[seams.Passage]) -> None:
    seen = []

    class Masked(Block):
        def forward(self, x: torch.Tensor, scale: float = 1.0, *, mask: Any = None, how: str = "") -> Any:
            seen.append((scale, mask[0].tolist(), how))
            return {"out": (x.masked_fill(mask[0], scale), None)}

    mask = torch.tensor([True, False] * 4)
    replay(Masked(), input_of(), 0.1, mask=[mask], how="often")
    assert seen == [(0.1, mask.tolist(), "often")] * 3


def test_a_twin_has_copies_of_what_the_module_holds() -> None:
    class Held(Block):
        def __init__(self) -> None:
            super().__init__()
            self.again = [self.linear.weight]
            self.table = {"x": torch.ones(8)}
            self.method = self.twice
            self.back = weakref.ref(self.linear)

        def twice(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.append(2)
            self.table["x"].mul_(2)
            return x * 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert self.again[0] is self.linear.weight
            assert self.back() is self.linear
            return self.method(self.linear(x)) * self.table["x"]

    held = Held()
    replay(held, input_of())
    assert held.calls == []
    assert torch.equal(held.table["x"], torch.ones(8))


def test_a_block_that_checkpoints_inside_is_replayed() -> None:
    class Recomputed(Block):
        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(self.linear, x, use_reentrant=False)

    assert replay(Recomputed(), input_of()).signed == 0b11111


def test_rnns_are_replayed() -> None:
    found = replay(nn.LSTM(8, 8), torch.zeros(5, 2, 8, requires_grad=True))
    assert found.signed == 0b11111
    assert found.differing == 0


def test_half_precision_and_autocast_are_as_in_the_call() -> None:
    linear = nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = recipe_of(linear, input_of())
    plain = recipe_of(linear, input_of())
    assert cast.recipe != plain.recipe
    forms = []
    for recipe in (cast, plain):
        replayed(recipe, KEY, KEY)
        forms.append(recipe.form)
    assert "bfloat16" in forms[0]
    assert "float32" in forms[1]


def test_warnings_of_a_replay_go_nowhere_and_are_not_shown_twice() -> None:
    class Warning_(Block):
        def forward(self, x: torch.Tensor) -> Any:
            warnings.warn("look", stacklevel=1)
            return self.linear(x)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        replay(Warning_(), input_of())
        warnings.warn("mine", stacklevel=1)
    assert [str(each.message) for each in caught] == ["mine"]


def test_a_rank_that_disagrees_with_itself_says_in_what(passage: list[seams.Passage]) -> None:
    def spoil(part: Part, place: str, tensor: torch.Tensor, context: seams.Context) -> torch.Tensor:
        return tensor + 1 if part is Part.OUTPUT and context.run == 2 else tensor

    passage.append(spoil)
    assert replay(Block(), input_of()).differing == 1 << Part.OUTPUT


def test_a_value_that_is_not_finite_is_said(passage: list[seams.Passage]) -> None:
    def spoil(part: Part, place: str, tensor: torch.Tensor, context: seams.Context) -> torch.Tensor:
        return tensor * float("nan") if part is Part.PARAMETER and place == "linear.bias" else tensor

    passage.append(spoil)
    found = replay(Block(), input_of())
    assert found.nonfinite & 1 << Part.PARAMETER
    assert found.nonfinite & 1 << Part.OUTPUT
    assert not found.nonfinite & 1 << Part.INPUT


class Changing(Block):
    def forward(self, x: torch.Tensor) -> Any:
        return x.add_(1)


class ChangingQuietly(Block):
    def forward(self, x: torch.Tensor, mask: Any = None) -> Any:
        mask.logical_not_()
        return self.linear(x)


class Choosing(Block):
    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x)[x[:, 0] > 0]


class Outside(Block):
    def __init__(self) -> None:
        super().__init__()
        vars(self)["parent"] = nn.Linear(2, 2)


class Closing(Block):
    def __init__(self) -> None:
        super().__init__()
        linear = self.linear
        self.function = lambda x: linear(x)


class Locked(Block):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Raising(Block):
    def forward(self, x: torch.Tensor) -> Any:
        raise LookupError("not today")


class Hungry(Block):
    def forward(self, x: torch.Tensor) -> Any:
        raise torch.OutOfMemoryError("no memory is left")


def patched() -> nn.Module:
    block = Block()
    block.forward = lambda x: x  # type: ignore[method-assign]
    return block


@pytest.mark.parametrize(
    ("make", "kwargs", "reason"),
    [
        (Changing, {}, "in-place|in place"),
        (ChangingQuietly, {"mask": torch.ones(8, dtype=torch.bool)}, "changes its arguments in place"),
        (Choosing, {}, "shape of its output depends on values"),
        (Outside, {}, "refers to a Linear outside of it"),
        (Closing, {}, "closes over a Linear"),
        (Locked, {}, "cannot be copied"),
        (patched, {}, "forward of a Block was replaced"),
        (lambda: nn.SyncBatchNorm(8), {}, "SyncBatchNorm communicates"),
        (lambda: torch.jit.script(nn.Linear(8, 8)), {}, "TorchScript"),
        (Raising, {}, "not today"),
        (Hungry, {}, "no memory is left"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_a_reason(
    make: Callable[[], nn.Module], kwargs: dict[str, Any], reason: str
) -> None:
    module = make()
    state = torch.get_rng_state()
    with pytest.raises(Exception, match=reason):
        replay(module, input_of(), **kwargs)
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("value", [object(), {1: 2}, torch.ones(2).to_sparse(), [lambda: 0]])
def test_arguments_that_cannot_be_made_again_are_refused(value: Any) -> None:
    with pytest.raises(Refusal, match="argument"):
        learn(Block(), (input_of(), value), {})


def test_arguments_that_are_too_large_to_be_shared_are_refused() -> None:
    with pytest.raises(Refusal, match="more than 16 MiB"):
        learn(Block(), (input_of(), torch.zeros(17 << 20, dtype=torch.bool)), {})


def test_no_replay_where_the_users_tools_would_see_it() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Spy(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    block = Block()
    recipe = recipe_of(block, input_of())
    with Spy(), pytest.raises(Refusal, match="dispatch mode"):  # type: ignore[no-untyped-call]
        replayed(recipe, KEY, KEY)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(Refusal, match="global module hooks"):
            replayed(recipe, KEY, KEY)
    finally:
        handle.remove()
    assert replayed(recipe, KEY, KEY)


def test_a_recipe_without_the_content_of_its_arguments_waits() -> None:
    block, mask = Block(), torch.ones(8, dtype=torch.bool)
    recipe = recipe_of(block, input_of(), mask)
    assert recipe.learnt is not None
    recipe.learn(type(recipe.learnt)(recipe.learnt.form))
    assert recipe.state is RecipeState.LEARNING
    with pytest.raises(Refusal, match="not known yet"):
        replayed(recipe, KEY, KEY)


@pytest.mark.parametrize(("signed", "differing"), [({}, 0), ({Part.INPUT: 7}, 0), ({Part.INPUT: 8}, 1)])
def test_a_captured_input_differs_only_where_there_is_one(signed: dict[Part, int], differing: int) -> None:
    recipe: Any = SimpleNamespace(captured=7, recipe=1, peers=None)
    outcome = Outcome({**signed, Part.OUTPUT: 3})
    assert _record(recipe, 1, 1, outcome, outcome).differing == differing << int(Part.INPUT)
