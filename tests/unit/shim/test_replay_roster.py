"""What of a model is replayed, whose call is used, and what ranks tell each other of it."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn

from scoutd.proto.replay import RecipeKind, RecipeMode, RecipeState
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Undo
from scoutd.shim.replay import templates
from scoutd.shim.replay.ambience import ambience
from scoutd.shim.replay.call import learn
from scoutd.shim.replay.catalog import find
from scoutd.shim.replay.channel import Channel
from scoutd.shim.replay.recipes import Peers
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.roster import Roster

CPU = torch.device("cpu")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(4, 1, 8) for _ in range(3)])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 10)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class Rank:
    """A roster without a store, as rank ``rank`` of three."""

    def __init__(self, rank: int, model: nn.Module) -> None:
        guard = Guard()
        self.told: list[bytes] = []
        channel = Channel(None, guard, lambda: None)
        channel.tell = lambda _, content: self.told.append(content)  # type: ignore[method-assign]
        self.roster = Roster(rank, channel, guard, guard.part("replay"), Undo(), lambda _: None)
        self.roster._peers_of = lambda _: Peers((0, 1, 2))  # type: ignore[method-assign]
        self.model = model
        self.roster.watch(model)

    def call(self, batch: int, size: int = 5) -> Rank:
        mask = torch.ones(size, size, dtype=torch.bool).triu(1)
        self.model(torch.zeros(size, batch, dtype=torch.int64), mask)
        self.roster.settle()
        return self


def test_embedding_blocks_and_head_are_found_by_structure() -> None:
    assert [(kind, path) for kind, path, _ in find(Net())] == [
        (RecipeKind.EMBEDDING, "embed"),
        (RecipeKind.HEAD, "head"),
        (RecipeKind.BLOCK, "blocks.0"),
        (RecipeKind.BLOCK, "blocks.1"),
        (RecipeKind.BLOCK, "blocks.2"),
    ]


@pytest.mark.parametrize(
    ("model", "paths"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), ["0", "2"]),
        (nn.Linear(2, 2), [""]),
        (nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Conv1d(2, 2, 1)}), ["a", "b"]),
    ],
)
def test_models_without_repeated_blocks_have_recipes_too(model: nn.Module, paths: list[str]) -> None:
    assert [path for _, path, _ in find(model)] == paths


def test_the_first_call_in_training_is_learnt_and_no_hook_is_left() -> None:
    model = Net()
    before = pickle.dumps(model)
    rank = Rank(0, model)
    assert all(each.state is RecipeState.LEARNING for each in rank.roster.recipes)
    copied = copy.deepcopy(model)
    assert type(pickle.loads(pickle.dumps(model))) is Net
    model.eval()
    rank.call(3)
    assert all(each.learnt is None for each in rank.roster.recipes)
    model.train()
    rank.call(3)
    assert all(each.learnt is not None for each in rank.roster.recipes)
    assert pickle.dumps(model) == before
    copied(torch.zeros(5, 2, dtype=torch.int64), None)


def test_detaching_takes_out_hooks_that_wait_for_a_call() -> None:
    model = Net()
    before = pickle.dumps(model)
    Rank(0, model).roster.forget()
    assert pickle.dumps(model) == before


def test_a_wrapped_model_takes_the_place_of_what_it_wraps() -> None:
    model = Net()
    rank = Rank(0, model)
    rank.roster.watch(nn.Sequential(model))
    assert len(rank.roster.recipes) == len(find(nn.Sequential(model)))
    count = len(rank.roster.recipes)
    rank.roster.watch(model)
    assert len(rank.roster.recipes) == count


def test_the_first_ranks_calls_are_used_where_shapes_or_masks_differ() -> None:
    torch.manual_seed(1)
    first, other = Rank(0, Net()).call(3), Rank(1, Net()).call(2)
    mine = [each.recipe for each in first.roster.recipes]
    assert [each.state for each in first.roster.recipes] == [RecipeState.READY] * 5
    assert [each.mode for each in first.roster.recipes] == [RecipeMode.SEEDED] * 2 + [RecipeMode.TEMPLATE] * 3
    assert [each.state for each in other.roster.recipes] == [RecipeState.READY] * 2 + [
        RecipeState.LEARNING
    ] * 3
    other.roster.adopt(templates.unpacked(first.told[0]))
    assert [each.recipe for each in other.roster.recipes] == mine
    assert [each.state for each in other.roster.recipes] == [RecipeState.READY] * 5
    assert other.told == []


def test_what_the_first_rank_cannot_learn_is_disabled_on_all() -> None:
    first, other = Rank(0, Net()), Rank(1, Net()).call(2)
    for recipe in first.roster.recipes:
        recipe.disable("an argument is a Cache")
    first.roster.settle()
    other.roster.adopt(templates.unpacked(first.told[0]))
    assert {each.reason for each in other.roster.recipes} == {"an argument is a Cache"}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "text"])
def test_a_damaged_template_is_refused_as_a_whole(damage: str) -> None:
    content = Rank(0, Net()).call(3).told[0]
    broken = {
        "cut": content[:-30],
        "changed": content[:-30] + bytes(each ^ 1 for each in content[-30:]),
        "empty": b"",
        "text": b"\xff" * 200,
    }[damage]
    with pytest.raises(ValueError, match=r".+"):
        templates.unpacked(broken)


def test_a_collective_is_refused_before_it_begins_in_a_rehearsal() -> None:
    store = dist.HashStore()
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        value = torch.ones(2)
        with pytest.raises(Refusal, match="communicates"), ambience(1, CPU, rehearsal=True):
            dist.all_reduce(value)
    finally:
        dist.destroy_process_group()


def test_a_copy_that_one_rank_alone_has_does_not_make_its_list_another_one() -> None:
    """Averaged weights that are only evaluated, found in the heap before the model or after it."""
    plain = Rank(0, Net()).call(2)
    for order in (0, 1):
        model, average = Net(), nn.Sequential(Net())
        rank = Rank(0, model)
        rank.roster.forget()
        for each in ((model, average), (average, model))[order]:
            rank.roster.watch(each)
        peers = {id(average): Peers((0,))}
        rank.roster._peers_of = lambda recipe, r=rank, p=peers: p.get(  # type: ignore[misc, method-assign]
            id(r.roster._owner(recipe)), Peers((0, 1, 2))
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rank.roster.see(optimizer)
        rank.call(2)
        recipes = rank.roster.recipes
        assert [each.name for each in recipes[:-1]] == [each.name for each in plain.roster.recipes]
        assert [each.index for each in recipes] == list(range(len(recipes)))
        assert recipes[-1].kind is RecipeKind.OPTIMIZER
        assert rank.roster._owner(recipes[-1]) is model
        assert rank.roster.place(Peers((0, 1, 2))) == plain.roster.place(Peers((0, 1, 2)))
        assert not any(part._forward_pre_hooks for part in average.modules())


def test_of_two_models_with_other_peers_the_calls_of_both_are_heard() -> None:
    store, heard = dist.HashStore(), []
    ranks = []
    for number in range(2):
        channel, guard = Channel(store, Guard(), lambda: None), Guard()
        roster = Roster(number, channel, guard, guard.part("replay"), Undo(), heard.append)
        small, large = nn.TransformerEncoderLayer(4, 1, 8), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        roster._peers_of = lambda recipe, r=roster, s=small: Peers(  # type: ignore[misc, method-assign]
            (0, 1) if r._owner(recipe) is s else (0, 1, 2)
        )
        roster.watch(small)
        roster.watch(large)
        small(torch.zeros(2, 2, 4))
        large(torch.zeros(2, 4))
        roster.settle()
        ranks.append((roster, channel, small, large))
    for now in range(4):
        for _, channel, *_ in ranks:
            channel.turn(1000.0 * now)
    assert len(heard) == 2
    told = sorted(index for each in heard for index in (*each.calls, *each.refused))
    assert told == [each.index for each in ranks[1][0].recipes]


def test_a_model_whose_owner_is_gone_is_left_out_too() -> None:
    rank = Rank(0, Net())
    other = Net()
    rank.roster.watch(other)
    rank.roster._peers_of = lambda recipe: Peers(  # type: ignore[method-assign]
        (0, 1, 2) if rank.roster._owner(recipe) is rank.model else (0,)
    )
    del other
    gc.collect()
    rank.call(2)
    assert [each.index for each in rank.roster.recipes] == list(range(5))


def test_content_is_shared_by_recipes_that_take_the_same_mask() -> None:
    rank = Rank(0, Net()).call(2)
    small, large = len(rank.told[0]), len(Rank(0, Net()).call(2, size=64).told[0])
    assert large - small < 2 * 64 * 64


def test_whole_numbers_into_an_embedding_are_seeded() -> None:
    embed = nn.Embedding(10, 4)
    assert not learn(embed, (torch.zeros(3, dtype=torch.int64),), {}, 10).needs
    assert learn(embed, (torch.zeros(3, dtype=torch.int64),), {}).needs
