"""Agents' addresses, seeds and key through a store; nothing is ever waited for."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch.distributed as dist

from scoutd.proto import shm
from scoutd.shim.identity import Identity
from scoutd.shim.rendezvous import MAX_SEEDS, Rendezvous, candidates


class Rank:
    """A rank's rendezvous, turned by hand."""

    def __init__(self, store: Any, rank: int, world_size: int, address: str = "") -> None:
        self.address = address
        self.published: list[shm.Discovery] = []
        self.part = Rendezvous(store, rank, world_size, lambda: self.address, self.published.append)
        self.part._prefix = "1/"

    def turn(self, gathering: bool = True) -> shm.Discovery:
        self.part.turn(gathering)
        return self.published[-1] if self.published else shm.Discovery("", "")


@pytest.fixture
def store() -> Any:
    return dist.HashStore()


@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 100, 16384, 100_000])
def test_seeds_are_few_spread_and_begin_with_rank_0(world_size: int) -> None:
    ranks = candidates(world_size)
    assert ranks[0] == 0
    assert len(set(ranks)) == len(ranks) <= MAX_SEEDS
    assert all(0 <= rank < world_size for rank in ranks)
    assert world_size < 4 or ranks[-1] >= world_size // 2


def test_everybody_learns_the_key_and_the_seeds(store: Any) -> None:
    ranks = [Rank(store, rank, 4, f"10.0.0.{rank // 2}:7641") for rank in range(4)]
    for _ in range(3):
        for rank in ranks:
            rank.turn()
    found = {rank.turn() for rank in ranks}
    assert len(found) == 1
    (seen,) = found
    assert seen.seeds == "10.0.0.0:7641,10.0.0.1:7641"
    assert len(bytes.fromhex(seen.key)) == 32


def test_nothing_is_known_before_rank_0_has_spoken(store: Any) -> None:
    assert Rank(store, 3, 4, "a:1").turn() == shm.Discovery("", "")


def test_an_agent_that_comes_late_becomes_a_seed(store: Any) -> None:
    leader, other = Rank(store, 0, 2, ""), Rank(store, 1, 2, "")
    leader.turn(), other.turn()
    assert other.published[-1].seeds == ""
    other.address = "b:1"
    other.turn(), leader.turn()
    assert other.turn().seeds == "b:1"
    leader.address = "a:1"
    leader.turn()
    assert other.turn().seeds == "a:1,b:1"


def test_who_gathers_no_longer_still_takes_the_first_seed(store: Any) -> None:
    leader, other = Rank(store, 0, 4, ""), Rank(store, 2, 4, "")
    leader.turn(gathering=False)
    other.address = "c:1"
    other.turn()
    leader.turn(gathering=False)
    assert other.turn().seeds == "c:1"
    assert json.loads(store.get("scoutd//1/seeds")) == [["c:1"], True]


def test_an_agent_that_moves_tells_its_new_address(store: Any) -> None:
    rank = Rank(store, 0, 1, "a:1")
    rank.turn()
    rank.address = "a:2"
    rank.turn()
    assert store.get("scoutd//1/agent/0") == b"a:2"


def test_without_a_store_nothing_begins() -> None:
    part = Rendezvous(None, 0, 1, lambda: "a:1", lambda found: None)
    part.begin(Identity("job", 1))
    part.stop()
    assert part._thread is None


def test_the_thread_survives_a_store_that_fails() -> None:
    class Broken:
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("connection reset")

    rank = Rank(dist.HashStore(), 1, 2, "")
    rank.part._store = Broken()  # type: ignore[misc]
    with pytest.raises(RuntimeError):
        rank.turn()
    rank.part.begin(Identity("job", 1))
    rank.part.stop()
    assert rank.part._thread is not None
    assert not rank.part._thread.is_alive()
