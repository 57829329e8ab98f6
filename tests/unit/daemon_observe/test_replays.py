"""Recipes, results and requests: from a rank's file to evidence, and on to a verdict."""

from __future__ import annotations

from scoutd.agent.core import Core
from scoutd.agent.events import Observed, Tick
from scoutd.agent.replay import Part, RecipeKind, RecipeState
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Cause, State
from scoutd.daemon.observe.observer import JobObservation, Observer
from scoutd.proto import replay, shm
from tests.unit.daemon_observe.conftest import S, World
from tests.unit.daemon_observe.writer import Writer

STATE = replay.ReplayState(50, 1, 0, 100, 1, 10 * S, S // 10, 0)
RECIPE = replay.Recipe(0xB10C, 77, 1, 5, 4, replay.RecipeKind.BLOCK, 0, replay.RecipeState.READY, "b.1", "")
BLOCK_PARTS = 0b11111


def put(writer: Writer, now_ns: int, step: int, count: int, output: int = 30) -> None:
    """The rank has replayed its recipe at this step, its ``count``-th replay."""
    result = replay.Replay(
        step,
        0xB10C,
        77,
        step,
        now_ns,
        1,
        BLOCK_PARTS,
        0,
        0,
        10,
        20,
        output,
        40,
        50,
        0,
        5_000,
        shm.UNKNOWN_U64,
    )
    writer.put(shm.RECIPES, RECIPE)
    writer.put(shm.REPLAYS, result, count % 64)
    writer.put(shm.REPLAY, STATE._replace(replays=count, steps=step))


def only(observer: Observer) -> JobObservation:
    (observation,) = observer.observe()
    return observation


def test_a_result_becomes_evidence(world: World) -> None:
    writer = world.rank(0)
    put(writer, world.clock.now, 50, 1)
    world.clock.advance(0.25)
    (rank,) = only(world.observer()).report.ranks
    (result,) = rank.replays
    assert result.signatures == (10, 20, 30, 40, 50, None)
    assert (result.key, result.step, result.age_ns, result.gather_ns) == (50, 50, S // 4, None)
    (recipe,) = rank.recipes
    assert (recipe.kind, recipe.state, recipe.peers) == (RecipeKind.BLOCK, RecipeState.READY, 4)
    assert rank.replay_cost is not None
    assert rank.replay_cost.share == 0.01


def test_a_rank_without_replays_says_nothing(world: World) -> None:
    world.rank(0)
    (rank,) = only(world.observer()).report.ranks
    assert (rank.replays, rank.recipes, rank.replay_cost) == ((), (), None)


def test_new_results_are_seen_and_old_ones_left_out(world: World) -> None:
    writer = world.rank(0)
    observer = world.observer()
    put(writer, world.clock.now, 50, 1)
    only(observer)
    world.clock.advance(100)
    put(writer, world.clock.now, 100, 2)
    assert [r.key for r in only(observer).report.ranks[0].replays] == [50, 100]
    world.clock.advance(100)
    assert [r.key for r in only(observer).report.ranks[0].replays] == [100]


def test_a_torn_result_is_never_evidence(world: World) -> None:
    writer = world.rank(0)
    put(writer, world.clock.now, 50, 1)
    writer.tear(shm.REPLAYS, 1)
    assert only(world.observer()).report.ranks[0].replays == ()


def test_from_files_to_a_verdict(world: World) -> None:
    writers = [world.rank(rank) for rank in range(4)]
    for rank, writer in enumerate(writers):
        put(writer, world.clock.now, 50, 1, output=31 if rank == 2 else 30)
    core = Core(Settings())
    core.step(Observed(only(world.observer()).report), world.clock.now)
    core.step(Tick(), world.clock.now)
    (verdict,) = core.verdicts
    assert (verdict.cause, verdict.state) == (Cause.SDC_OUTPUT, State.CONFIRMED)
    assert [i.rank for i in verdict.implicated] == [2]


def test_a_request_reaches_the_rank(world: World) -> None:
    writer = world.rank(0)
    observer = world.observer()
    only(observer)
    request = replay.Request(7, 0, world.clock.now + S, 1)
    assert observer.request_replay("train-ab12", request) == {0: True}
    assert shm.read(bytes(writer.view), 0, shm.REQUEST, 0) == request


def test_parts_have_one_order() -> None:
    assert [p.name for p in Part] == [p.name for p in replay.Part]
