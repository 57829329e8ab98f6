"""Real inputs of the first rank are replayed by all ranks or by none; who was given other bytes is named."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from scoutd.agent.replay import Part, ReplayResult
from scoutd.agent.sdc import Round, judge
from scoutd.agent.verdict import Cause
from scoutd.daemon.observe.replays import results
from scoutd.proto import replay
from scoutd.proto.replay import RecipeMode, RecipeState
from scoutd.shim.coordinates import Coordinates
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Undo
from scoutd.shim.replay import broadcast, templates
from scoutd.shim.replay.cadence import Due, InputMode, scheduled
from scoutd.shim.replay.call import Call, halved, learn, make
from scoutd.shim.replay.capture import kept_call
from scoutd.shim.replay.recipes import Peers
from scoutd.shim.replay.refusal import Refusal
from scoutd.shim.replay.replays import Replays
from scoutd.shim.replay.seeds import Source
from scoutd.shim.shmfile import ShmFile

WORLD = 3
CPU = torch.device("cpu")
UNUSED = Source(0, 0)
Spoil = Callable[[str, bytes], bytes]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x + self.linear(x).masked_fill(mask, scale)  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(4, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        mask = ids.unsqueeze(-1) % 2 == 0
        for block in self.blocks:
            x = block(x, mask, scale=0.5)
        return self.head(x)  # type: ignore[no-any-return]


class Pipe:
    """A store in which a test can spoil what one rank reads or writes."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.spoil: Spoil = lambda _, content: content

    def set(self, key: str, value: Any) -> None:
        self.store.set(key, self.spoil(key, value) if isinstance(value, bytes) else value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Rank:
    """One rank of a job in which all have equal parameters and different data."""

    def __init__(self, rank: int, model: nn.Module, file: ShmFile, store: Any, mode: InputMode) -> None:
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.coordinates = Coordinates(file)
        self.guard = Guard()
        self.replays = Replays(
            file, self.coordinates, self.guard, Undo(), None, rank, every=1, variants=64, mode=mode
        )
        self.pipe = Pipe(store)
        vars(self.replays.channel)["_store"] = self.pipe
        self.replays.roster._peers_of = lambda _: Peers(tuple(range(WORLD)))  # type: ignore[method-assign]
        self.found: list[tuple[RecipeMode, replay.Replay]] = []
        self.replays.evidence.result = self._found  # type: ignore[method-assign]
        self.replays.watch(self.model)
        self.data = torch.Generator().manual_seed(rank)

    def _found(self, recipe: Any, result: replay.Replay) -> None:
        self.found.append((recipe.mode, result))

    @property
    def broadcasts(self) -> list[replay.Replay]:
        return [result for mode, result in self.found if mode is RecipeMode.BROADCAST]

    def step(self, batch: int = 6) -> None:
        self.model(torch.randint(0, 10, (batch, 3), generator=self.data))
        self.coordinates.step += 1
        self.replays.after_step(self.optimizer, counted=True)


class Ranks:
    """All of them, step by step; the channels have their turn between two steps."""

    def __init__(self, file: ShmFile, mode: InputMode = InputMode.BOTH) -> None:
        torch.manual_seed(1)
        model, store = Net(), dist.HashStore()
        self.store = store
        self.all = [Rank(rank, model, file, store, mode) for rank in range(WORLD)]
        self.now_s = 0.0
        self.deaf: set[int] = set()

    def step(self, times: int = 1, **options: Any) -> Ranks:
        for _ in range(times):
            for rank in self.all:
                rank.step(**options)
            for _ in range(3):
                self.now_s += 100.0
                for number, rank in enumerate(self.all):
                    if number not in self.deaf:
                        rank.replays.channel.turn(self.now_s)
        return self

    def rounds(self) -> list[Round]:
        """Of broadcasts, as the agent sees them."""
        found: dict[Any, dict[int, ReplayResult]] = {}
        for number, rank in enumerate(self.all):
            for result in results(rank.broadcasts, 0):
                found.setdefault(result.round, {})[number] = result
        return [Round(at, WORLD, told) for at, told in found.items()]

    def causes(self) -> set[tuple[Cause, tuple[int, ...]]]:
        assert self.rounds()
        return {(d.cause, d.ranks) for round_ in self.rounds() for d in judge(round_).deviations}


@pytest.fixture
def ranks(file: ShmFile, monkeypatch: pytest.MonkeyPatch) -> Ranks:
    monkeypatch.setattr(broadcast, "AHEAD_S", 0.0)
    monkeypatch.setattr(broadcast, "AHEAD_SHARE", 0.0)
    return Ranks(file)


def flipped(content: bytes) -> bytes:
    """The last byte with something in it has another lowest bit."""
    at = len(content.rstrip(b"\0")) - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_all_ranks_replay_the_first_ranks_real_input_after_the_same_step(ranks: Ranks) -> None:
    ranks.step(20)
    first, *others = ([each[:4] + each[5:15] for each in rank.broadcasts] for rank in ranks.all)
    assert len(first) >= 8
    assert len({each[1] for each in first}) == 4
    assert all(other == first for other in others)
    assert all(judge(round_).agreed for round_ in ranks.rounds())
    assert [rank.guard.errors for rank in ranks.all] == [0] * WORLD


def test_two_broadcasts_are_of_two_inputs_and_seeded_replays_go_on(ranks: Ranks) -> None:
    ranks.step(24)
    modes = [mode for mode, _ in ranks.all[1].found]
    assert modes.count(RecipeMode.SEEDED) > 10
    inputs = {(each.recipe, each.input) for each in ranks.all[1].broadcasts}
    assert len(inputs) == len(ranks.all[1].broadcasts) >= 8


def test_with_broadcasts_alone_each_recipe_is_replayed_from_seeds_once(
    file: ShmFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "AHEAD_S", 0.0)
    ranks = Ranks(file, InputMode.BROADCAST).step(20)
    for rank in ranks.all:
        seeded = [result for mode, result in rank.found if mode is not RecipeMode.BROADCAST]
        optimizer = rank.replays.roster.recipes[4].recipe
        others = [result for result in seeded if result.recipe != optimizer]
        assert len(seeded) - len(others) == 20
        assert len({result.recipe for result in others}) == len(others) >= 4
        assert {result.step for result in others} <= {1, 2}  # before and after the first rank's calls came
        assert len(rank.broadcasts) >= 4
    assert all(judge(round_).agreed for round_ in ranks.rounds())


def test_a_peer_without_the_broadcast_makes_all_skip_it(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks.step()
    ranks.deaf = {2}
    ranks.step(7)
    assert not any(rank.broadcasts for rank in ranks.all)
    monkeypatch.setattr(broadcast, "DEADLINE_S", 0.0)
    ranks.step()
    monkeypatch.setattr(broadcast, "DEADLINE_S", 1e9)
    leader = ranks.all[0].replays.sharing
    assert {each.reason for each in leader.recipes.values()} == {
        "the last broadcast did not reach all peers in time"
    }
    ranks.deaf = set()
    ranks.step(12)
    assert all(rank.broadcasts for rank in ranks.all)
    assert all(judge(round_).agreed for round_ in ranks.rounds())
    assert {each.reason for each in leader.recipes.values()} == {""}


def test_the_more_are_given_up_the_longer_the_next_one_is_waited_for(ranks: Ranks) -> None:
    """A rank without a shim is never ready; its peers and the store are not kept busy for nothing."""
    leader = broadcast.Leader("base", 2, ranks.all[0].replays.channel)
    now_s, rests = 100.0, []
    for _ in range(10):
        assert leader.may_send(now_s)
        leader.send({}, {}, now_s)
        assert not leader.may_send(now_s)
        now_s += broadcast.DEADLINE_S + 1.0
        assert leader.turn(7, 1.0, now_s) is None
        ranks.all[0].replays.channel.turn(now_s)
        rest = next(n for n in range(10_000) if leader.may_send(now_s + n))
        rests.append(rest)
        now_s += rest
    assert rests == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    leader.send({}, {}, now_s)
    leader._hear(leader.sent)
    assert leader.turn(7, 1.0, now_s) is not None
    ranks.all[0].replays.channel.turn(now_s)
    assert leader.may_send(now_s + 3600)
    leader.send({}, {}, now_s + 3600)
    assert leader.turn(7, 1.0, now_s + 3700) is None
    ranks.all[0].replays.channel.turn(now_s)
    assert leader.may_send(now_s + 3731)


def test_a_peer_that_cannot_replay_it_makes_all_skip_it(ranks: Ranks) -> None:
    ranks.step()
    ranks.all[1].replays.roster.recipes[2].disable("out of memory")
    ranks.step(12)
    assert not any(rank.broadcasts for rank in ranks.all)
    assert ranks.all[1].replays.sharing.recipes[2].reason == "out of memory"


def test_a_peer_that_hears_of_the_step_too_late_takes_no_part(ranks: Ranks) -> None:
    while ranks.all[0].replays.sharing._agreed is None:
        ranks.step()
    vars(ranks.all[2].replays.sharing)["_agreed"] = None
    follower = ranks.all[2].replays.sharing._follower
    assert follower is not None
    agreed = ranks.all[0].replays.sharing._agreed
    assert agreed is not None
    follower.agreed.append(broadcast.Agreed(ranks.all[2].coordinates.step, agreed.calls))
    ranks.step(3)
    missing = [round_ for round_ in ranks.rounds() if len(round_.results) < WORLD]
    assert {frozenset(round_.results) for round_ in missing} <= {frozenset({0, 1})}
    assert not any(judge(round_).deviations for round_ in missing)


def test_nothing_is_left_in_the_store(ranks: Ranks) -> None:
    ranks.step(4)
    after_first = ranks.store.num_keys()
    ranks.step(30)
    assert ranks.store.num_keys() <= after_first + 8  # the newest, the announcement


def test_a_rank_that_has_received_something_else_is_named(ranks: Ranks) -> None:
    """One bit of the copy that rank 1 has got."""
    receive = templates.unpacked

    def spoilt(content: bytes, **options: Any) -> templates.Templates:
        return receive(flipped(content), **options)

    follower_of(ranks, 1, spoilt)
    ranks.step(16)
    assert ranks.causes() == {(Cause.SDC_BROADCAST, (1,))}


def follower_of(ranks: Ranks, rank: int, unpacked: Any) -> None:
    """This rank unpacks broadcasts differently."""
    while ranks.all[rank].replays.sharing._follower is None:
        ranks.step()
    follower = ranks.all[rank].replays.sharing._follower
    assert follower is not None
    receive = follower._receive

    def spoilt(content: bytes) -> None:
        kept, templates.unpacked = templates.unpacked, unpacked
        try:
            receive(content)
        finally:
            templates.unpacked = kept

    follower._receive = spoilt  # type: ignore[method-assign]


def test_the_first_rank_is_named_where_it_sends_something_else_than_it_has(ranks: Ranks) -> None:
    """One bit changes between its memory and the store; all peers agree on what they got."""

    def spoil(key: str, content: bytes) -> bytes:
        return flipped(content) if "/input/" in key else content

    ranks.all[0].pipe.spoil = spoil
    ranks.step(16)
    assert ranks.causes() == {(Cause.SDC_BROADCAST, (0,))}


def test_the_first_rank_is_named_where_its_copy_has_changed_since_it_was_captured(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks replay the same wrong input: only the signature of the capture tells."""
    send = broadcast.Leader.send

    def spoilt(self: broadcast.Leader, calls: Any, *rest: Any) -> None:
        for call in calls.values():
            for tensor in call.fixed.values():
                tensor.view(torch.uint8).reshape(-1)[0] ^= 1
        send(self, calls, *rest)

    monkeypatch.setattr(broadcast.Leader, "send", spoilt)
    ranks.step(16)
    assert ranks.causes() == {(Cause.SDC_BROADCAST, (0,))}
    inputs = {tuple(result.signature(Part.INPUT) for result in r.results.values()) for r in ranks.rounds()}
    assert all(len(set(each)) == 1 for each in inputs)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 300, b"3", b"a b"])
def test_what_cannot_be_read_is_skipped(ranks: Ranks, damage: bytes) -> None:
    def spoil(key: str, content: bytes) -> bytes:
        return damage if "/broadcast" in key else content

    ranks.all[0].pipe.spoil = spoil
    ranks.step(8)
    assert not any(rank.broadcasts for rank in ranks.all)
    assert [rank.guard.errors for rank in ranks.all] == [0] * WORLD


def test_a_header_that_was_changed_is_refused() -> None:
    call = kept_call(nn.Identity(), (torch.ones(2, 3),), {}, "0", half=False, limit=1 << 20)
    content = templates.pack(templates.Templates({0: call}))
    at = content.index(b'"calls"') + 1
    with pytest.raises(ValueError, match="header"):
        templates.unpacked(content[:at] + b"k" + content[at + 1 :], content_is_evidence=True)
    tail = flipped(content)
    assert templates.unpacked(tail, content_is_evidence=True).calls.keys() == {0}
    with pytest.raises(ValueError, match="changed"):
        templates.unpacked(tail)


def test_a_captured_call_is_made_again_with_everything_in_it() -> None:
    x = torch.randn(6, 4, requires_grad=True)
    mask, scalar = torch.arange(12).reshape(6, 2) > 3, torch.tensor(2)
    call = kept_call(nn.Identity(), (x, [mask]), {"n": scalar, "how": "often"}, "7", half=True, limit=1 << 20)
    x.data.zero_()
    made = make(call, UNUSED, CPU)
    assert made.args[0].shape == (3, 4)
    assert made.args[0].requires_grad
    assert not bool((made.args[0] == 0).any())
    assert torch.equal(made.args[1][0], mask[:3])
    assert (made.kwargs["n"].item(), made.kwargs["how"]) == (2, "often")
    again = templates.unpacked(templates.pack(templates.Templates({7: call})), content_is_evidence=True)
    assert torch.equal(make(again.calls[7], UNUSED, CPU).args[0], made.args[0])


def test_the_batch_of_a_captured_call_is_that_of_a_seeded_one() -> None:
    """Positions and masks come first in many blocks, and their first dimension is none."""
    args = (torch.arange(8), torch.ones(8, 8, dtype=torch.bool), torch.randn(4, 8, 16))
    half = halved(learn(nn.Identity(), args, {}))
    assert half is not None
    captured = kept_call(nn.Identity(), args, {}, "0", half=True, limit=1 << 20)
    shapes = [[t.shape for t in make(call, UNUSED, CPU).tensors] for call in (half, captured)]
    assert shapes == [[(8,), (8, 8), (2, 8, 16)]] * 2
    ids = torch.zeros(6, 3, dtype=torch.int64)
    captured = kept_call(nn.Identity(), (ids,), {}, "0", half=True, limit=1 << 20, indices=True)
    assert make(captured, UNUSED, CPU).args[0].shape == (3, 3)


def test_as_much_of_the_batch_is_captured_as_may_be_sent() -> None:
    x = torch.randn(16, 256)

    def rows(limit: int, half: bool = True) -> Any:
        call = kept_call(nn.Identity(), (x,), {}, "0", half, limit)
        return make(call, UNUSED, CPU).args[0].shape[0]

    assert [rows(1 << 20), rows(5 << 10), rows(1 << 10), rows(1 << 20, half=False)] == [8, 5, 1, 16]
    with pytest.raises(Refusal, match="may be sent"):
        rows(1000)
    with pytest.raises(Refusal, match="may be sent"):
        rows(1 << 10, half=False)


def test_what_is_too_large_is_said_and_nothing_is_sent(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_BYTES", 16)
    ranks.step(8)
    found = ranks.all[0].replays.sharing.recipes.values()
    assert {each.state for each in found} == {RecipeState.DISABLED}
    assert all("may be sent" in each.reason for each in found)
    assert ranks.all[0].guard.errors == 0


def test_more_peers_get_smaller_broadcasts() -> None:
    assert broadcast.limit_of(1) == broadcast.limit_of(16) == 16 << 20
    assert broadcast.limit_of(1024) == 256 << 10


def test_the_hook_is_there_for_one_step_on_the_first_rank_alone(ranks: Ranks) -> None:
    seen = set()
    for _ in range(12):
        ranks.step()
        seen.add(tuple(map(hooks, ranks.all)))
    assert seen == {(0, 0, 0), (4, 0, 0)}
    captures = ranks.all[0].replays.sharing._captures
    while not captures:
        ranks.step()
        captures = ranks.all[0].replays.sharing._captures
    copied = copy.deepcopy(ranks.all[0].model)
    copied(torch.zeros(2, 3, dtype=torch.int64))
    assert [each.call for each in captures] == [None] * 4
    assert type(pickle.loads(pickle.dumps(ranks.all[0].model))) is Net
    ranks.all[0].replays.sharing.forget()
    assert hooks(ranks.all[0]) == 0


def hooks(rank: Rank) -> int:
    return sum(len(module._forward_pre_hooks) for module in rank.model.modules())


def test_a_batch_of_another_shape_is_broadcast_as_it_is(ranks: Ranks) -> None:
    ranks.step(9)
    ranks.step(16, batch=2)
    assert all(judge(round_).agreed for round_ in ranks.rounds())
    assert all(each.state is RecipeState.READY for each in ranks.all[1].replays.sharing.recipes.values())


def test_what_is_under_way_is_gone_when_the_model_is_another(ranks: Ranks) -> None:
    first = ranks.all[0].replays
    while first.sharing._leader is None or first.sharing._leader.is_free:
        ranks.step()
    leader = first.sharing._leader
    assert ranks.store.check([f"{leader._base}/input/1", f"{leader._base}/input/1/0"])
    leader.stop()
    first.channel.turn(ranks.now_s)
    assert leader.told == b"1 -1"
    assert leader.is_free
    for name in (f"{leader._base}/input/1", f"{leader._base}/ready/1"):
        assert not ranks.store.check([name])
        assert not ranks.store.check([f"{name}/0"])


def test_another_model_begins_anew(ranks: Ranks) -> None:
    ranks.step(9)
    for rank in ranks.all:
        rank.model = nn.Sequential(rank.model)
        rank.replays.watch(rank.model)
        rank.found.clear()
    ranks.step(16)
    assert all(rank.broadcasts for rank in ranks.all)
    assert all(judge(round_).agreed for round_ in ranks.rounds())


def test_modes_share_the_turns() -> None:
    due = [each for step in range(1, 13) for each in scheduled(step, 1, 2, 4)]
    assert [each.cycle for each in due] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4
    wanted = {mode: [mode.is_broadcast(each) for each in due] for mode in InputMode}
    assert not any(wanted[InputMode.SEEDED])
    assert wanted[InputMode.BROADCAST] == [False] * 4 + [True] * 20
    assert wanted[InputMode.BOTH] == ([False] * 4 + [True] * 4) * 3
    assert not InputMode.BROADCAST.is_broadcast(Due(1 << 63 | 7, 0, 1))


def test_seeded_alone_sends_nothing(file: ShmFile) -> None:
    ranks = Ranks(file, InputMode.SEEDED).step(8)
    assert not any(rank.replays.sharing.recipes for rank in ranks.all)
    assert not any(rank.broadcasts for rank in ranks.all)


def test_nothing_is_broadcast_through_a_file(file: ShmFile, tmp_path: Path) -> None:
    """It keeps what was deleted."""
    undo, guard, coordinates = Undo(), Guard(), Coordinates(file)
    for store, mode in (
        (dist.FileStore(str(tmp_path / "store"), 1), InputMode.SEEDED),
        (dist.HashStore(), InputMode.BOTH),
    ):
        job = dist.PrefixStore("again", dist.PrefixStore("default", store))
        made = Replays(file, coordinates, guard, undo, job, 0, every=1, variants=1, mode=InputMode.BOTH)
        assert made.sharing.mode is mode


def test_a_call_without_tensors_is_captured_too() -> None:
    assert kept_call(nn.Identity(), (3,), {}, "0", half=True, limit=0) == Call(
        '[["L",[["N",3]]],["D",[]],true,[]]'
    )
