"""The main loop: look, feed the cores, do what they ask; again.

A round is synchronous and short. Rounds follow each other every ``interval_s``, faster while some core is
about to decide something or a process has just exited, and at once when the kernel reports an exit. A round
survives anything: a failure of one part of it (the observer, one job) is counted, logged once per kind of
failure, and the next round begins as if nothing had been.

A job enters when it is first observed and leaves when all its ranks have been gone for ``linger_s``, or when
its launcher says that it is over (``conclude``). Leaving removes its files in shared memory and its core; its
verdicts stay in the ledger. A concluded job with processes that still live stays until they are gone: their
files are in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from scoutd.agent.events import CaptureStack, Effect, Report, SampleActivity
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.config import ObserveSection
from scoutd.daemon.jobs import Job
from scoutd.daemon.log import logger
from scoutd.daemon.reporter import Reporter
from scoutd.daemon.sdnotify import Notifier
from scoutd.daemon.seams import CorePort, NeighboursPort, ObservationPort, ObserverPort
from scoutd.daemon.shelf import Shelf

FAST_INTERVAL_S: Final = 0.1
LATE_FACTOR: Final = 4
MOST_INTERVAL_S: Final = 1.0
"""An agent whose rounds come late rests longer, by so many times its lateness, but not longer than this."""

FAST_AFTER_EXIT_S: Final = 2.0
YOUNG_NS: Final = 10 * NS_PER_S
"""A job this young is looked at often: its ranks are still arriving, and may die before they are known."""
CONCLUDE_WAIT_S: Final = 1.0
"""How long ``conclude`` waits for the last processes: a launcher's children die within 0.1 s of it."""

PEERS_WAIT_S: Final = 10.0
"""And how long for other nodes: what they saw of the end, and that they know what was seen here. Agents on
busy machines lag by seconds; usually it takes half of one."""

MAX_CAPTURES: Final = 8
MAX_KNOWN_FAILURES: Final = 256


class Loop:
    """The jobs of this node. ``interval_s`` and ``linger_s`` may change between rounds (reload)."""

    def __init__(
        self,
        observer: ObserverPort,
        make_core: Callable[[str], CorePort],
        reporter: Reporter,
        notifier: Notifier,
        clock: Callable[[], int],
        observe: ObserveSection,
        neighbours: NeighboursPort | None = None,
    ) -> None:
        self.jobs: Final[dict[str, Job]] = {}
        self.observer: Final = observer
        self.make_core = make_core
        self.observe = observe
        self.shelf: Final = Shelf()
        self.eager = False
        """Look often until the first job is found: a private agent is started together with its job."""
        self.rounds = 0
        self._neighbours: Final = neighbours
        self._reporter: Final = reporter
        self._notifier: Final = notifier
        self._clock: Final = clock
        self._wake: Final = asyncio.Event()
        self._fast_until_ns = 0
        self._late_s = 0.0
        self._captures: Final[dict[tuple[str, int], asyncio.Task[None]]] = {}
        self._failures: Final[set[str]] = set()
        observer.on_exit = self._on_exit

    async def run(self, stop: asyncio.Event) -> None:
        """Rounds follow each other until ``stop`` is set."""
        while not stop.is_set():
            self.round()
            await self._rest(self._interval_s())

    def round(self) -> None:
        """Every job has been looked at once, and its core's wishes are on their way."""
        started = self._clock()
        newest = self._look()
        now = self._clock()
        for name, observation in newest.items():
            self._admit(name, observation, now)
        for job in list(self.jobs.values()):
            self._guard("job", self._advance, job, newest.get(job.name), now)
        self.rounds += 1
        if self._neighbours is not None:
            self._neighbours.late(int(self._late_s * NS_PER_S))
        self._reporter.metrics.observation.observe((self._clock() - started) / NS_PER_S)
        self._notifier.feed(now)

    async def conclude(self, run: str = "") -> None:
        """The jobs of a run (of all runs, if empty) are decided as far as they can be, and forgotten.

        Waits a moment for processes that are still dying, and for what agents of other nodes saw of the end.
        What lives after that is forgotten when it goes.
        """
        deadline = self._clock() + int(CONCLUDE_WAIT_S * NS_PER_S)
        self.round()
        while self._clock() < deadline and not all(job.gone for job in self._of(run)):
            await self._rest(FAST_INTERVAL_S)
            self.round()
        deadline = self._clock() + int(PEERS_WAIT_S * NS_PER_S)
        while self._clock() < deadline and not all(self._settled(job) for job in self._of(run)):
            await self._rest(FAST_INTERVAL_S)
            self.round()
        self.conclude_now(run)

    def conclude_now(self, run: str = "") -> None:
        """Like ``conclude``, without waiting for anything."""
        for job in self._of(run):
            self._guard("job", self._conclude, job, self._clock())

    async def close(self) -> None:
        """No capture runs, and the observer is closed."""
        tasks = list(self._captures.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.observer.on_exit = None
        self.observer.close()

    def wake(self) -> None:
        """The next round begins at once."""
        self._wake.set()

    def _settled(self, job: Job) -> bool:
        return self._neighbours is None or self._neighbours.settled(job.name)

    def _of(self, run: str) -> list[Job]:
        return [job for job in self.jobs.values() if not run or job.run == run]

    def _look(self) -> dict[str, ObservationPort]:
        """The newest generation of each job, by its name; older ones are the observer's to fence off."""
        found: Sequence[ObservationPort] = self._guard("observe", self.observer.observe) or ()
        return {each.job: each for each in sorted(found, key=lambda each: each.generation)}

    def _admit(self, name: str, observation: ObservationPort, now_ns: int) -> None:
        job = self.jobs.get(name)
        if job is None:
            self.eager = False
            job = self.jobs[name] = Job(observation, self.make_core(name), now_ns)
            logger().info(
                "job observed",
                job=name,
                generation=observation.generation,
                run=observation.run,
                world_size=observation.report.world_size,
            )
        elif observation.generation <= job.generation:
            return
        self._reporter.ledger.record_generation(name, observation.generation)

    def _advance(self, job: Job, observation: ObservationPort | None, now_ns: int) -> None:
        was_gone = job.gone
        if observation is not None and self._neighbours is not None:
            self._neighbours.meet(observation)
        self._execute(job, job.advance(observation, now_ns))
        if job.gone and not was_gone:
            logger().info("job gone", job=job.name, generation=job.generation)
        if job.gone_since_ns is None:
            return
        over = job.concluded or job.observation.starting
        if over or now_ns - job.gone_since_ns >= int(self.observe.linger_s * NS_PER_S):
            self._conclude(job, now_ns)

    def _conclude(self, job: Job, now_ns: int) -> None:
        try:
            self._execute(job, job.conclude(now_ns))
        finally:
            if job.gone:
                self.jobs.pop(job.name, None)
                if self._neighbours is not None:
                    self._neighbours.leave(job.name)
                self.observer.forget(job.name, job.generation)

    def _execute(self, job: Job, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Report):
                self._guard("report", self._reporter.report, effect.verdict, job.run)
                self.shelf.put(effect.verdict.id, job.core.moment(effect.verdict.id), self._clock())
            elif isinstance(effect, SampleActivity):
                job.sampling = bool(effect.ranks)
                self.observer.sample_activity(job.name, effect.ranks)
            elif isinstance(effect, CaptureStack):
                self._capture(job.name, effect)

    def _capture(self, name: str, effect: CaptureStack) -> None:
        """One capture per rank at a time; what is beyond the limit is asked for again by the core."""
        key = (name, effect.rank)
        if key in self._captures or len(self._captures) >= MAX_CAPTURES:
            return
        work = self._captured(self.observer.capture_stack(name, effect.rank, effect.native))
        task = self._captures[key] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._captures.pop(key, None))

    async def _captured(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the run loop's guard, for its tasks
            self._failed("capture", error)
        self._wake.set()

    def _guard(self, part: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of ``work``; None, counted and logged, if it raised."""
        try:
            return work(*arguments)
        except Exception as error:  # noqa: BLE001 - the run loop survives anything, by design
            self._failed(part, error)
            return None

    def failed_peer(self, error: Exception) -> None:
        """A task of the exchange ended in an error of ours: counted and logged like a failure of a round."""
        self._failed("peer", error)

    def _failed(self, part: str, error: Exception) -> None:
        self._reporter.metrics.count_error(part)
        kind = f"{part}: {type(error).__name__}: {error}"
        if kind not in self._failures and len(self._failures) < MAX_KNOWN_FAILURES:
            self._failures.add(kind)
            logger().error("a part of a round failed", part=part, exc_info=error)

    def _on_exit(self) -> None:
        self._fast_until_ns = self._clock() + int(FAST_AFTER_EXIT_S * NS_PER_S)
        self._wake.set()

    def _interval_s(self) -> float:
        now = self._clock()
        young = self.eager or any(now - job.began_ns < YOUNG_NS for job in self.jobs.values())
        hurry = young or now < self._fast_until_ns or any(job.suspicious(now) for job in self.jobs.values())
        interval = min(FAST_INTERVAL_S, self.observe.interval_s) if hurry else self.observe.interval_s
        return min(interval + LATE_FACTOR * self._late_s, max(interval, MOST_INTERVAL_S))

    async def _rest(self, duration_s: float) -> None:
        """Returns after ``duration_s``, or when woken; cheaper than a task per round."""
        due = asyncio.get_running_loop().time() + duration_s
        timer = asyncio.get_running_loop().call_at(due, self._wake.set)
        await self._wake.wait()
        self._late_s = max(0.0, asyncio.get_running_loop().time() - due)
        timer.cancel()
        self._wake.clear()
