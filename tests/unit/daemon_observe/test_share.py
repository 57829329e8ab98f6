"""A share of the ranks, and what shims tell about other agents."""

from __future__ import annotations

import pytest

from scoutd.daemon.observe.observer import Observer
from scoutd.daemon.observe.share import Share, parse_share
from scoutd.proto import shm
from tests.unit.daemon_observe.conftest import World
from tests.unit.daemon_observe.writer import HEADER


@pytest.mark.parametrize(("of", "world_size"), [(1, 4), (2, 4), (4, 8), (3, 8), (4, 3), (2, 1)])
def test_every_rank_is_held_once_and_in_blocks(of: int, world_size: int) -> None:
    shares = [Share(index, of) for index in range(of)]
    held = [[r for r in range(world_size) if share.holds(r, world_size)] for share in shares]
    assert sorted(rank for ranks in held for rank in ranks) == list(range(world_size))
    assert all(ranks == list(range(ranks[0], ranks[-1] + 1)) for ranks in held if ranks)
    assert [share.size(world_size) for share in shares] == [len(ranks) for ranks in held]
    assert max(map(len, held)) - min(map(len, held)) <= 1


@pytest.mark.parametrize(
    ("text", "share"), [("0/2", Share(0, 2)), ("3/4", Share(3, 4)), ("2/2", None), ("a/b", None), ("", None)]
)
def test_a_share_is_written_as_a_fraction(text: str, share: Share | None) -> None:
    assert parse_share(text) == share


def observer_of(world: World, share: Share | None = None) -> Observer:
    observer = Observer(world.root, "n1", None, world.clock, share=share)
    world.observers.append(observer)
    return observer


def test_agents_of_one_machine_see_and_remove_their_own_ranks_only(world: World) -> None:
    for rank in range(4):
        world.rank(rank)
    first, second = (observer_of(world, Share(index, 2)) for index in range(2))
    assert [[r.rank for r in o.observe()[0].report.ranks] for o in (first, second)] == [[0, 1], [2, 3]]
    first.forget(HEADER.job, 1)
    assert [r.rank for r in second.observe()[0].report.ranks] == [2, 3]
    assert sorted(file.name for file in (world.job_path() / "1").iterdir()) == ["rank-2", "rank-3"]


def test_a_rank_reads_where_its_agent_is_reached(world: World) -> None:
    writer = world.rank(0)
    observer = observer_of(world)
    observer.address = "10.0.0.7:7641"
    observer.observe()
    command = writer.command()
    assert command is not None
    assert command.address == "10.0.0.7:7641"


@pytest.mark.parametrize(("local", "shared"), [(4, False), (2, True)])
def test_a_job_is_shared_if_it_has_ranks_on_other_nodes(world: World, local: int, shared: bool) -> None:
    world.rank(0, local_world_size=local)
    assert observer_of(world).observe()[0].discovery.shared is shared


def test_a_job_of_unknown_spread_is_shared_if_ranks_stay_away(world: World) -> None:
    world.rank(0, local_world_size=0)
    observer = observer_of(world)
    assert not observer.observe()[0].discovery.shared
    world.clock.advance(11.0)
    assert observer.observe()[0].discovery.shared


def test_key_and_seeds_are_read_and_a_key_that_is_none_is_not(world: World) -> None:
    world.rank(0).put(shm.DISCOVERY, shm.Discovery("a:1,b:2", "0f" * 32))
    world.rank(1).put(shm.DISCOVERY, shm.Discovery("b:2,c:3", "not a key"))
    discovery = observer_of(world).observe()[0].discovery
    assert discovery.keys == (bytes.fromhex("0f" * 32),)
    assert discovery.seeds == ("a:1", "b:2", "c:3")
