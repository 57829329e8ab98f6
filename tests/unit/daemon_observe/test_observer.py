"""The observer over fake rank files: what is reported, and what is refused."""

from __future__ import annotations

import gc
import os
import random
import weakref

import pytest

from scoutd.agent.evidence import Phase, ProcessStatus, Source
from scoutd.daemon.observe.observer import JobObservation, Observer
from scoutd.proto import shm
from tests.unit.daemon_observe.conftest import S, World
from tests.unit.daemon_observe.writer import CALL, COORDINATE, GROUP


def only(observer: Observer) -> JobObservation:
    (observation,) = observer.observe()
    return observation


def test_nothing_there_is_no_job_and_no_warning(world: World) -> None:
    observer = world.observer()
    assert observer.observe() == []
    assert observer.warnings == ()


def test_a_rank_is_reported_with_ages(world: World) -> None:
    writer = world.rank(0)
    writer.put(shm.HEARTBEAT, shm.Heartbeat(world.clock.now, 5, 0, 1234, 10, 0, "recorder"))
    writer.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now))
    writer.put(shm.TOPOLOGY, shm.Topology('{"wrapper": "DDP"}'))
    observer = world.observer()
    only(observer)
    world.clock.advance(0.25)
    observation = only(observer)
    (rank,) = observation.report.ranks
    assert rank.observed
    assert rank.process.status is ProcessStatus.RUNNING
    assert rank.heartbeat_age_ns == rank.silent_ns == S // 4
    assert rank.coordinate is not None
    assert (rank.coordinate.phase, rank.coordinate.step) == (Phase.FORWARD, 1)
    assert (observation.job, observation.generation, observation.run) == ("train-ab12", 1, "r1")
    assert observation.report.world_size == 4
    assert observation.report.version == 2
    assert observation.topology == {0: {"wrapper": "DDP"}}
    assert observation.disabled == {0: "recorder"}
    assert observation.shim_cost == {0: (1234, 10)}


def test_a_moving_rank_is_not_read_whole_and_a_silent_one_is(world: World) -> None:
    writer = world.rank(0)
    writer.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now))
    writer.put(shm.CALLS, CALL._replace(entered_ns=world.clock.now))
    observer = world.observer()
    only(observer)
    assert only(observer).report.ranks[0].calls == ()
    world.clock.advance(1.5)
    (call,) = only(observer).report.ranks[0].calls
    assert call.waiting
    assert call.age_ns == 3 * S // 2


def test_a_call_is_a_sign_of_progress(world: World) -> None:
    writer = world.rank(0)
    writer.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now))
    world.clock.advance(5)
    writer.put(shm.CALLS, CALL._replace(entered_ns=world.clock.now))
    world.clock.advance(1)
    assert only(world.observer()).report.ranks[0].silent_ns == S


def test_a_counter_moves_only_when_it_was_seen_to_grow(world: World) -> None:
    writer = world.rank(0)
    writer.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now))
    writer.put(shm.GROUPS, GROUP)
    world.clock.advance(20)
    writer.put(shm.COUNTERS, shm.Counters(7, 4, shm.UNKNOWN_U64, world.clock.now))
    observer = world.observer()
    assert only(observer).report.ranks[0].silent_ns == 20 * S
    writer.put(shm.COUNTERS, shm.Counters(7, 4, shm.UNKNOWN_U64, world.clock.now + 1))
    assert only(observer).report.ranks[0].silent_ns == 20 * S
    writer.put(shm.COUNTERS, shm.Counters(7, 5, 4, world.clock.now))
    rank = only(observer).report.ranks[0]
    assert rank.silent_ns == 0
    (group,) = rank.groups
    assert (group.enqueued, group.retired) == (5, 4)
    assert list(group.members or ()) == [0, 1, 2, 3]


def test_a_new_group_appears_at_once(world: World) -> None:
    writer = world.rank(0)
    writer.put(shm.GROUPS, GROUP)
    observer = world.observer()
    assert len(only(observer).report.ranks[0].groups) == 1
    writer.put(shm.GROUPS, GROUP._replace(group=8), slot=1)
    writer.put(shm.COUNTERS, shm.Counters(8, 1, shm.UNKNOWN_U64, world.clock.now), slot=1)
    writer.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now))
    assert [g.group for g in only(observer).report.ranks[0].groups] == [7, 8]


def test_the_recorder_adds_what_no_public_call_describes(world: World) -> None:
    writer = world.rank(0)
    now = world.clock.now
    writer.put(shm.CALLS, CALL)
    pending = shm.Pending(now, 7, 3, now, 16, "all_reduce", "float32", "[16]")
    writer.put(shm.PENDING, pending)
    writer.put(shm.PENDING, pending._replace(sequence=4), slot=1)
    writer.put(shm.PENDING, pending._replace(sequence=2, dump_ns=now - 1), slot=2)
    writer.put(shm.RECORDER, shm.RecorderState(now, now, 2, 0))
    world.clock.advance(2)
    calls = only(world.observer()).report.ranks[0].calls
    assert [(c.sequence, c.source) for c in calls] == [(3, Source.PUBLIC), (4, Source.RECORDER)]


def test_only_the_run_asked_for_is_observed(world: World) -> None:
    world.rank(0, run="r1")
    world.rank(0, run="r2", job="other-cd34")
    assert [o.job for o in world.observer("r2").observe()] == ["other-cd34"]
    assert sorted(o.job for o in world.observer(None).observe()) == ["other-cd34", "train-ab12"]


def test_only_the_newest_generation_is_reported(world: World) -> None:
    world.rank(0, generation=1)
    observer = world.observer()
    assert only(observer).generation == 1
    world.rank(0, generation=2)
    world.clock.advance(1)
    assert only(observer).generation == 2


def test_the_shim_learns_that_it_is_observed(world: World) -> None:
    writer = world.rank(0)
    observer = world.observer()
    observer.observe()
    first = writer.command()
    assert first is not None
    assert (first.observer_pid, first.observed_ns) == (os.getpid(), world.clock.now)
    world.clock.advance(0.5)
    observer.observe()
    assert writer.command() == first
    world.clock.advance(0.6)
    observer.observe()
    second = writer.command()
    assert second is not None
    assert second.observed_ns == world.clock.now
    # A restarted observer goes on where the last one stopped.
    world.clock.advance(1)
    world.observer().observe()
    third = writer.command()
    assert third is not None
    assert third.observed_ns == world.clock.now


def test_a_replaced_file_is_opened_anew(world: World) -> None:
    first = world.rank(0)
    observer = world.observer()
    observer.observe()
    first.path.unlink()
    second = world.rank(0)
    second.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now, step=9))
    world.clock.advance(0.6)
    coordinate = only(observer).report.ranks[0].coordinate
    assert coordinate is not None
    assert coordinate.step == 9


def truncated(world: World) -> None:
    os.truncate(world.rank(1).path, 4096)


def foreign_version(world: World) -> None:
    world.rank(1).view[8:12] = (77).to_bytes(4, "little")


def symlink(world: World) -> None:
    path = world.rank(1).path
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def fifo(world: World) -> None:
    path = world.rank(1).path
    path.unlink()
    os.mkfifo(path)


def no_header(world: World) -> None:
    world.rank(1).tear(shm.HEADER)


def wrong_rank(world: World) -> None:
    path = world.rank(2).path
    path.rename(path.with_name("rank-1"))


def foreign_owner(world: World) -> None:
    if world.uid != 0:
        pytest.skip("needs root to give a file away")
    os.chown(world.rank(1).path, 65534, 65534)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (truncated, "4096 bytes"),
        (foreign_version, "layout version 77"),
        (symlink, "symbolic link"),
        (fifo, "not a regular file"),
        (no_header, "no valid header"),
        (wrong_rank, "rank-2"),
        (foreign_owner, "belongs to uid 65534"),
    ],
)
def test_a_bad_file_is_a_warning_and_no_evidence(world: World, spoil: object, says: str) -> None:
    assert callable(spoil)
    world.rank(0)
    spoil(world)
    observer = world.observer()
    observation = only(observer)
    assert [r.rank for r in observation.report.ranks] == [0]
    (warning,) = observation.warnings
    assert warning.startswith(f"{world.uid}/train-ab12/1/rank-1: ")
    assert says in warning
    assert observer.warnings == observation.warnings


def test_a_file_that_is_truncated_later_ends_as_a_warning(world: World) -> None:
    world.rank(0)
    writer = world.rank(1)
    observer = world.observer()
    assert len(only(observer).report.ranks) == 2
    os.truncate(writer.path, 128)
    world.clock.advance(0.25)
    observation = only(observer)
    assert [r.rank for r in observation.report.ranks] == [0]
    assert "truncated" in observation.warnings[0]
    world.clock.advance(1)
    assert "128 bytes" in only(observer).warnings[0]


def test_a_torn_record_is_never_believed(world: World) -> None:
    writer = world.rank(0)
    writer.put(shm.PROGRESS, COORDINATE._replace(entered_ns=world.clock.now, step=3))
    observer = world.observer()
    only(observer)
    writer.tear(shm.PROGRESS)
    observation = only(observer)
    coordinate = observation.report.ranks[0].coordinate
    assert coordinate is not None
    assert coordinate.step == 3
    assert observation.warnings == (f"{world.uid}/train-ab12/1/rank-0: torn records in PROGRESS",)
    writer.put(shm.PROGRESS, COORDINATE._replace(step=4))
    writer.put(shm.PROGRESS, COORDINATE._replace(step=5))
    observation = only(observer)
    coordinate = observation.report.ranks[0].coordinate
    assert coordinate is not None
    assert coordinate.step == 5
    assert observation.warnings == ()


def test_corruption_is_never_evidence(world: World) -> None:
    """Bytes flipped anywhere: no exception, and nothing is reported that was not written."""
    dice = random.Random(7)
    writer = world.rank(0)
    writer.put(shm.GROUPS, GROUP)
    for _ in range(2):
        writer.put(shm.PROGRESS, COORDINATE)
        writer.put(shm.CALLS, CALL)
        writer.put(shm.COUNTERS, shm.Counters(7, 3, 2, 0))
    whole = bytes(writer.view)
    written = [at for at in range(shm.PREFIX.size, len(whole)) if whole[at]]
    refused = 0
    for _ in range(150):
        writer.view[:] = whole
        for _ in range(dice.choice((1, 40, 400))):
            writer.view[dice.choice(written)] ^= 1 << dice.randrange(8)
        observer = world.observer()
        observations = observer.observe()
        refused += not observations
        for rank in (r for o in observations for r in o.report.ranks):
            assert {(c.step, c.phase, c.operation) for c in rank.coordinates} <= {
                (1, Phase.FORWARD, "layers.3 (Block)")
            }
            assert {(c.group, c.sequence, c.fingerprint.operation) for c in rank.calls} <= {
                (7, 3, "all_reduce")
            }
            assert {(g.group, g.enqueued) for g in rank.groups} <= {(7, 3), (7, 0)}
        observer.close()
    assert 0 < refused < 150


@pytest.mark.parametrize("text", ["[" * 4000, "{", "[1]", "null"])
def test_a_topology_that_is_no_object_is_none(world: World, text: str) -> None:
    world.rank(0).put(shm.TOPOLOGY, shm.Topology(text))
    assert only(world.observer()).topology == {}


def test_a_directory_that_is_a_link_is_refused(world: World) -> None:
    world.rank(0)
    path = world.job_path()
    path.with_name("other").symlink_to(path)
    observer = world.observer()
    assert [o.job for o in observer.observe()] == ["train-ab12"]
    assert observer.warnings[0].startswith(f"{world.uid}/other: refused")


def test_an_unknown_phase_is_none(world: World) -> None:
    world.rank(0).put(shm.PROGRESS, COORDINATE._replace(phase=200))
    coordinate = only(world.observer()).report.ranks[0].coordinate
    assert coordinate is not None
    assert coordinate.phase is Phase.NONE


def test_a_replaced_file_leaves_nothing_behind(world: World) -> None:
    """Also where the rank's activity was sampled: else every replacement keeps all that was read of it."""
    world.rank(0)
    observer = world.observer()
    seen: list[weakref.ref[object]] = []
    for _ in range(3):
        only(observer)
        observer.sample_activity("train-ab12", (0,))
        only(observer)
        seen += [weakref.ref(rank) for job in observer._jobs.values() for rank in job.ranks.values()]
        (old,) = world.root.rglob("rank-0")
        data = old.read_bytes()
        old.unlink()
        old.write_bytes(data)
        world.clock.advance(1)
        only(observer)
        gc.collect()
    assert [ref() for ref in seen] == [None] * 3
