"""The observer: everything that this node shows about its jobs, once per call of ``observe``.

It finds the jobs (tree), reads their ranks (rank), watches their processes, and adds what was asked for:
activity and stacks of suspicious ranks. Only the newest generation of a job is reported; older ones are
fenced off and removed when they are dead. ``observe`` is synchronous, quick and never raises for a bad
file: that file is a warning and no evidence. About once a second every rank is told that it is observed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scoutd.agent.evidence import NodeReport, RankReport
from scoutd.daemon.observe import cleaning, tree
from scoutd.daemon.observe.activity import ActivitySampler
from scoutd.daemon.observe.job import Discovery, ObservedJob
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.share import Share
from scoutd.daemon.observe.stacks import StackCapture
from scoutd.daemon.observe.starting import Start, Starting
from scoutd.daemon.observe.tree import Place
from scoutd.daemon.observe.unobserved import UnobservedProcess, UnobservedScan
from scoutd.proto.replay import Request

SCAN_NS: Final = 500_000_000
ANNOUNCE_NS: Final = 1_000_000_000
CLEAN_NS: Final = 5_000_000_000


@dataclass(frozen=True)
class JobObservation:
    """One job in one pass. ``topology``, ``disabled`` (parts of the shim that are off) and ``shim_cost``
    (nanoseconds, boundaries) are by rank and hold only ranks that published them."""

    job: str
    generation: int
    run: str
    report: NodeReport
    topology: dict[int, dict[str, Any]]
    disabled: dict[int, str]
    shim_cost: dict[int, tuple[int, int]]
    warnings: tuple[str, ...]
    discovery: Discovery = field(default_factory=Discovery)
    starting: bool = False
    """Its ranks have not met yet; it ends when they have, and its files are another job's."""


class Observer:
    """All jobs of this node, or those of one run tag. ``incarnation`` goes into every report; ``address`` is
    what the shims tell other nodes' agents, empty for nothing. ``share``: observe these ranks only."""

    def __init__(
        self,
        root: Path,
        node: str,
        run: str | None,
        clock: Callable[[], int],
        incarnation: int = 1,
        share: Share | None = None,
    ) -> None:
        self.root: Final = root
        self.node: Final = node
        self.run: Final = run
        self.incarnation = incarnation
        self.address = ""
        self._share: Final = share
        self.on_exit: Callable[[], None] | None = None
        self._clock: Final = clock
        self._uid: Final = os.getuid()
        self._oom: Final = OomLedger()
        self._jobs: dict[tuple[int, str], ObservedJob] = {}
        self._tree = tree.Tree()
        self._version = 0
        self._scanned_ns = self._announced_ns = self._cleaned_ns = self._observed_ns = -(1 << 62)
        self._fenced: list[str] = []
        self._stacks: Final = StackCapture(clock)
        self._activity: Final = ActivitySampler(clock, self._stacks)
        self._unobserved: Final = UnobservedScan(clock, run, self._uid, self._exited, share)

        self._starting: Final = Starting(root, run, clock, self._stacks, self._exited, share)

    @property
    def unobserved(self) -> tuple[UnobservedProcess, ...]:
        """Processes that carry a rank and have no shim."""
        return self._unobserved.found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be believed in the last pass, over all jobs."""
        jobs = (warning for job in self._jobs.values() for warning in job.warnings)
        return (*self._tree.warnings, *self._fenced, *jobs)

    def observe(self) -> list[JobObservation]:
        """The newest generation of every job, with all its ranks, as of now."""
        now = self._clock()
        self._version += 1
        if now - self._scanned_ns >= SCAN_NS or not self._jobs:
            self._scan(now)
        self._unobserved.refresh(now, list(self._jobs.values()), self._tree.pending)
        observations = []
        for job in self._jobs.values():
            reports = job.reports(now)
            if reports:
                observations.append(self._observation(job, reports, now))
        observations += self._starts(now)
        if now - self._announced_ns >= ANNOUNCE_NS:
            self._announce(now)
        self._observed_ns = now
        return observations

    def _starts(self, now: int) -> list[JobObservation]:
        """Ranks that wait for one that has not come to ``init_process_group``."""
        attached = {r.watch.pid for job in self._jobs.values() for r in job.ranks.values()}
        self._starting.refresh(self._tree.pending, attached, now)
        found = self._starting.reports(self.node, self.incarnation, self._version, now)
        return [_start(start, report) for start, report in found]

    def sample_activity(self, job: str, ranks: tuple[int, ...]) -> None:
        """The reports of these ranks carry their activity from about a second from now on."""
        for found in self._named(job):
            self._activity.select(found, ranks)

    def request_replay(self, job: str, request: Request) -> dict[int, bool]:
        """By local rank of the job: it can read the request; False where its file may not be written."""
        return {r: told for found in self._named(job) for r, told in found.request_replay(request).items()}

    async def capture_stack(self, job: str, rank: int, native: bool) -> None:
        """The rank's next report carries its stack, or why there is none. An unknown rank has no effect."""
        for found in self._named(job):
            observed = found.ranks.get(rank)
            if observed is not None:
                await self._stacks.capture(observed, native)
        await self._starting.capture(job, rank, native)

    def forget(self, job: str, generation: int) -> None:
        """The generation is over: it is reported no more, and the files of its dead ranks are removed."""
        ours: set[int] | None = None if self._share is None else set()
        for found in self._named(job):
            if found.place.generation == generation:
                if ours is not None:
                    ours.update(found.ranks)
                self._drop(found)
        for place in [p for p in self._tree.ranks if (p.job, p.generation) == (job, generation)]:
            cleaning.remove_generation(place, ours)
            del self._tree.ranks[place]

    def close(self) -> None:
        """Nothing is watched and no file is open any more. Files of dead ranks stay where they are."""
        for job in list(self._jobs.values()):
            self._drop(job)
        self._unobserved.close()
        self._starting.close()
        self._stacks.close()

    def _scan(self, now: int) -> None:
        self._scanned_ns = now
        self._tree = tree.scan(self.root, self._uid)
        newest = self._tree.newest()
        for key, job in list(self._jobs.items()):
            if newest.get(key) != job.place:
                self._drop(job)
        for key, place in newest.items():
            if key not in self._jobs:
                self._jobs[key] = ObservedJob(
                    place, self._clock, self._oom, self.run, self._exited, self._share
                )
            self._jobs[key].update(self._tree.ranks[place])
        if now - self._cleaned_ns >= CLEAN_NS:
            self._cleaned_ns = now
            self._fenced = cleaning.remove_superseded(self._tree, self._is_ours)
            cleaning.remove_stale_pending(self.root, self._tree.pending)

    def _observation(self, job: ObservedJob, reports: list[RankReport], now: int) -> JobObservation:
        present = {report.rank for report in reports}
        extra = self._unobserved.reports(job, present)
        ranks = tuple(sorted([*self._activity.attach(job, reports, now), *extra], key=lambda r: r.rank))
        report = NodeReport(
            job=job.place.job,
            generation=job.place.generation,
            node=self.node,
            incarnation=self.incarnation,
            version=self._version,
            world_size=job.world_size,
            ranks=ranks,
            contested=job.contested(reports, now),
        )
        return JobObservation(
            job.place.job,
            job.place.generation,
            job.run,
            report,
            job.topology(),
            job.disabled(),
            job.shim_cost(),
            job.warnings,
            job.discovery(now),
        )

    def _announce(self, now: int) -> None:
        interval = max(0, min(now - self._observed_ns, ANNOUNCE_NS))
        self._announced_ns = now
        for job in self._jobs.values():
            job.announce(now, interval, self.address)

    def _is_ours(self, place: Place) -> bool:
        """An observer of one run leaves the files of other runs alone."""
        job = self._jobs.get((place.uid, place.job))
        return self.run is None or (job is not None and bool(job.ranks))

    def _named(self, job: str) -> list[ObservedJob]:
        return [found for found in self._jobs.values() if found.place.job == job]

    def _drop(self, job: ObservedJob) -> None:
        self._jobs.pop((job.place.uid, job.place.job), None)
        self._activity.forget(job)
        job.close()

    def _exited(self) -> None:
        if self.on_exit is not None:
            self.on_exit()


def _start(start: Start, report: NodeReport) -> JobObservation:
    return JobObservation(start.name, 1, start.run, report, {}, {}, {}, (), starting=True)
