"""The main loop with a fake core, a fake observer and a clock that stands still until told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from scoutd.agent.events import CaptureStack, Conclude, Effect, Observed, Report, SampleActivity, Tick
from scoutd.agent.evidence import ProcessStatus
from scoutd.daemon.clock import Stamps
from scoutd.daemon.config import ObserveSection
from scoutd.daemon.hooks import VerdictHook
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.loop import Loop
from scoutd.daemon.reporter import Reporter
from scoutd.daemon.sdnotify import Notifier
from scoutd.daemon.serve.metrics import Metrics
from scoutd.daemon.watchers import Watchers
from tests.unit.daemon_serve.fakes import FakeClock, FakeCore, FakeObserver, Observation, observation, verdict

GONE = ProcessStatus.GONE


class Rig:
    """A loop with all its neighbours."""

    def __init__(self, *observations: Observation, script: Sequence[tuple[type, list[Effect]]] = ()) -> None:
        self.clock = FakeClock()
        self.observer = FakeObserver(*observations)
        self.cores: list[FakeCore] = []
        self.ledger = Ledger(None)
        self.watchers = Watchers()
        self.metrics = Metrics(lambda: self.loop.jobs.values(), self.clock, "0", "3")
        reporter = Reporter(self.ledger, self.watchers, self.metrics, VerdictHook("", 1.0), Stamps(0, 0))
        self.script = script
        self.loop = Loop(self.observer, self.make_core, reporter, Notifier({}), self.clock, ObserveSection())

    def make_core(self, job: str) -> FakeCore:
        self.cores.append(FakeCore(self.script))
        return self.cores[-1]

    def sample(self, line: str) -> bool:
        return line in self.metrics.exposition().decode()


def in_loop(scenario: Callable[[], None]) -> None:
    """Runs a synchronous scenario where asyncio objects can be made."""

    async def body() -> None:
        scenario()

    asyncio.run(body())


def test_each_job_has_its_core_and_is_fed_observation_then_tick() -> None:
    def scenario() -> None:
        rig = Rig(observation("a"), observation("b"))
        rig.loop.round()
        rig.loop.round()
        assert len(rig.cores) == 2
        assert [type(event) for event in rig.cores[0].events] == [Observed, Tick, Observed, Tick]

    in_loop(scenario)


def test_restart_goes_to_the_same_core() -> None:
    def scenario() -> None:
        rig = Rig(observation(generation=1))
        rig.loop.round()
        rig.observer.observations = [observation(generation=2), observation(generation=1, status=GONE)]
        rig.loop.round()
        assert len(rig.cores) == 1
        seen = [event.report.generation for event in rig.cores[0].events if isinstance(event, Observed)]
        assert seen == [1, 2]

    in_loop(scenario)


def test_report_reaches_ledger_watchers_and_metrics_once() -> None:
    async def scenario() -> None:
        rig = Rig(observation(), script=[(Tick, [Report(verdict())]), (Tick, [Report(verdict())])])
        watcher = rig.watchers.add()
        assert watcher is not None
        rig.loop.round()
        rig.loop.round()
        rig.watchers.close()
        first = await watcher.next()
        assert first is not None
        assert (first.id, first.run, first.state) == ("aa", "r", "CONFIRMED")
        assert await watcher.next() is None
        assert rig.ledger.select(run="r") == [first]
        assert rig.sample('scoutd_verdicts_total{cause="RANK_STALLED",state="CONFIRMED",symptom="HANG"} 1.0')

    asyncio.run(scenario())


def test_new_wording_reaches_the_ledger_but_not_watchers() -> None:
    async def scenario() -> None:
        reworded = replace(verdict(), summary="rank 2 is still stuck")
        rig = Rig(observation(), script=[(Tick, [Report(verdict())]), (Tick, [Report(reworded)])])
        watcher = rig.watchers.add()
        assert watcher is not None
        rig.loop.round()
        rig.loop.round()
        rig.watchers.close()
        assert await watcher.next() is not None
        assert await watcher.next() is None
        assert b"still stuck" in rig.ledger.select()[0].message

    asyncio.run(scenario())


def test_effects_reach_the_observer() -> None:
    async def scenario() -> None:
        wishes: list[Effect] = [SampleActivity((1,)), CaptureStack(2, True), CaptureStack(2, True)]
        rig = Rig(observation(), script=[(Tick, wishes), (Tick, [SampleActivity(())])])
        rig.loop.round()
        assert rig.loop.jobs["j"].sampling
        await asyncio.sleep(0)
        rig.loop.round()
        assert not rig.loop.jobs["j"].sampling
        assert rig.observer.sampled == [("j", (1,)), ("j", ())]
        assert rig.observer.captured == [("j", 2, True)]
        await rig.loop.close()
        assert rig.observer.closed

    asyncio.run(scenario())


def test_failing_core_is_counted_and_harms_no_other_job() -> None:
    def scenario() -> None:
        rig = Rig(observation("a"), observation("b"))
        rig.loop.round()

        def broken(event: object, now_ns: int) -> list[Effect]:
            raise ValueError("defect")

        rig.cores[0].step = broken  # type: ignore[method-assign]
        rig.loop.round()
        rig.loop.round()
        assert len(rig.cores[1].events) == 6
        assert rig.sample('scoutd_errors_total{part="job"} 2.0')

    in_loop(scenario)


def test_failing_observer_is_counted_and_the_loop_goes_on() -> None:
    def scenario() -> None:
        rig = Rig(observation())
        working, rig.observer.observe = rig.observer.observe, _raise  # type: ignore[method-assign]
        rig.loop.round()
        rig.observer.observe = working  # type: ignore[method-assign]
        rig.loop.round()
        assert list(rig.loop.jobs) == ["j"]
        assert rig.sample('scoutd_errors_total{part="observe"} 1.0')

    in_loop(scenario)


def _raise() -> Sequence[Observation]:
    raise OSError("defect")


def test_gone_job_lingers_then_is_concluded_and_forgotten() -> None:
    def scenario() -> None:
        rig = Rig(observation(status=GONE))
        rig.loop.round()
        rig.clock.advance(59)
        rig.loop.round()
        assert rig.observer.forgotten == []
        rig.clock.advance(2)
        rig.loop.round()
        assert rig.cores[0].concluded == 1
        assert rig.observer.forgotten == [("j", 1)]
        assert rig.loop.jobs == {}

    in_loop(scenario)


def test_job_whose_files_vanished_is_dropped_like_one_that_is_gone() -> None:
    def scenario() -> None:
        rig = Rig(observation())
        rig.loop.round()
        rig.observer.observations = []
        rig.loop.round()
        rig.clock.advance(61)
        rig.loop.round()
        assert rig.loop.jobs == {}

    in_loop(scenario)


def test_conclude_decides_one_run_only() -> None:
    async def scenario() -> None:
        rig = Rig(
            observation("a", run="x", status=GONE),
            observation("b", run="y", status=GONE),
            script=[(Conclude, [Report(verdict(job="a"))])],
        )
        await rig.loop.conclude("x")
        assert list(rig.loop.jobs) == ["b"]
        assert rig.observer.forgotten == [("a", 1)]
        assert [each.job for each in rig.ledger.select(run="x")] == ["a"]

    asyncio.run(scenario())


def test_concluded_job_with_living_ranks_keeps_its_files_until_they_are_gone() -> None:
    def scenario() -> None:
        rig = Rig(observation())
        rig.loop.round()
        rig.loop.conclude_now("r")
        rig.loop.round()
        assert rig.observer.forgotten == []
        rig.observer.observations = [observation(status=GONE)]
        rig.loop.round()
        assert rig.observer.forgotten == [("j", 1)]
        assert rig.cores[0].concluded == 1
        assert isinstance(rig.cores[0].events[-1], Conclude)

    in_loop(scenario)


def test_exit_of_a_process_starts_a_round_at_once() -> None:
    async def scenario() -> None:
        rig = Rig(observation())
        rig.loop.observe = ObserveSection(interval_s=3600.0)
        stop = asyncio.Event()
        running = asyncio.ensure_future(rig.loop.run(stop))
        await asyncio.sleep(0)
        assert rig.loop.rounds == 1
        assert rig.observer.on_exit is not None
        rig.observer.on_exit()
        for _ in range(5):
            await asyncio.sleep(0)
        assert rig.loop.rounds == 2
        stop.set()
        rig.loop.wake()
        await running

    asyncio.run(scenario())


def test_pace_is_fast_while_suspicious_and_calm_again_when_long_gone() -> None:
    def scenario() -> None:
        rig = Rig(observation())
        rig.loop.round()
        assert rig.loop._interval_s() == 0.1, "a young job is looked at often"
        rig.clock.advance(11)
        assert rig.loop._interval_s() == 0.25
        rig.cores[0].suspicious = True
        assert rig.loop._interval_s() == 0.1
        rig.observer.observations = [observation(status=GONE)]
        rig.loop.round()
        assert rig.loop._interval_s() == 0.1
        rig.clock.advance(11)
        assert rig.loop._interval_s() == 0.25

    in_loop(scenario)


def test_a_start_that_is_over_is_forgotten_at_once() -> None:
    def scenario() -> None:
        rig = Rig(replace(observation(), starting=True))
        rig.loop.round()
        assert list(rig.loop.jobs) == ["j"]
        rig.observer.observations = []
        rig.loop.round()
        assert rig.loop.jobs == {}
        assert rig.cores[0].concluded == 1

    in_loop(scenario)
