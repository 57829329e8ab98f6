"""Processes that carry a rank in their environment and have no shim.

``python -I``, ``-S``, ``-E``, a cleared environment or a foreign interpreter leave a rank without a shim.
Such a process is found by RANK in its environment and reported, so that its death counts too. Children that
inherited RANK (DataLoader workers, resource trackers) are told by their parent, which carries the same;
launchers carry none. /proc is scanned only while a job lacks ranks or none is known, every 5 s, then less
often while nothing changes. A process younger than 10 s may still be importing torch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from scoutd.agent.evidence import RankReport
from scoutd.daemon.observe.job import ObservedJob
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.processes import ProcessWatch
from scoutd.daemon.observe.procstat import CLOCK_TICKS, list_names, process_stat, read_text
from scoutd.daemon.observe.share import Share

SCAN_NS: Final = 5_000_000_000
MAX_SCAN_NS: Final = 30_000_000_000
MIN_AGE_S: Final = 10.0
MAX_PROCESSES: Final = 256
REASON: Final = "no shim attached (python -I, -S, -E or a cleared environment?)"


@dataclass(frozen=True)
class UnobservedProcess:
    """A process that carries ``rank`` and publishes nothing; ``reason`` guesses why."""

    rank: int
    pid: int
    reason: str


@dataclass(frozen=True)
class Candidate:
    """A process with a rank in its environment. ``age_s`` since its start."""

    pid: int
    parent: int
    start_ticks: int
    rank: int
    world_size: int
    local_rank: int
    run: str
    age_s: float


class UnobservedScan:
    """Finds them and watches their processes. ``run``: only this run's; None: only this user's, and as root
    everybody's."""

    def __init__(
        self,
        clock: Callable[[], int],
        run: str | None,
        uid: int,
        on_exit: Callable[[], None],
        share: Share | None = None,
    ) -> None:
        self.found: tuple[UnobservedProcess, ...] = ()
        self._clock: Final = clock
        self._run: Final = run
        self._uid: Final = uid
        self._on_exit: Final = on_exit
        self._share: Final = share
        self._oom: Final = OomLedger()
        self._watches: Final[dict[tuple[int, int], tuple[Candidate, ProcessWatch]]] = {}
        self._next_ns = 0
        self._wait_ns = SCAN_NS
        self._owner: Final[dict[tuple[int, int], tuple[int, str, int]]] = {}

    def refresh(self, now_ns: int, jobs: list[ObservedJob], pending: Iterable[tuple[int, int, int]]) -> None:
        """Scans where it is due; otherwise costs nothing."""
        known = [job for job in jobs if job.ranks]
        self._drop_attached(known)
        if known and all(len(job.ranks) >= job.local_world_size for job in known):
            self._wait_ns = SCAN_NS
            return
        if now_ns < self._next_ns:
            return
        before = set(self._watches)
        found = candidates(self._run, self._uid)
        self._adopt(found, known, {(pid, ticks) for _, pid, ticks in pending})
        coming = before != set(self._watches) or any(c.age_s < MIN_AGE_S for c in found)
        self._next_ns = now_ns + self._wait_ns
        self._wait_ns = SCAN_NS if coming else min(2 * self._wait_ns, MAX_SCAN_NS)

    def reports(self, job: ObservedJob, present: set[int]) -> list[RankReport]:
        """Reports of the job's ranks that are not ``present``, with nothing but their process."""
        key = (job.place.uid, job.place.job, job.place.generation)
        return [
            RankReport(
                rank=candidate.rank,
                pid=candidate.pid,
                local_rank=candidate.local_rank,
                device="",
                observed=False,
                process=watch.view(silent=True),
            )
            for process, (candidate, watch) in self._watches.items()
            if self._owner.get(process) == key and candidate.rank not in present
        ]

    def close(self) -> None:
        for _, watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self.found = ()

    def _adopt(self, found: list[Candidate], jobs: list[ObservedJob], pending: set[tuple[int, int]]) -> None:
        """Ranks of their own among the candidates are watched, and belong to a job where one is known."""
        attached = {(r.watch.pid, r.watch.start_ticks) for job in jobs for r in job.ranks.values()}
        ranks = {(job.place.uid, job.place.job): set(job.ranks) for job in jobs}
        for candidate in select(found, attached | pending):
            if self._share is not None and not self._share.holds(candidate.rank, candidate.world_size):
                continue
            process = (candidate.pid, candidate.start_ticks)
            owner = owner_of(candidate, jobs)
            if owner is not None and candidate.rank in ranks[(owner.place.uid, owner.place.job)]:
                continue
            if owner is not None:
                place = owner.place
                self._owner[process] = (place.uid, place.job, place.generation)
            if process not in self._watches and len(self._watches) < MAX_PROCESSES:
                watch = ProcessWatch(
                    candidate.pid, candidate.start_ticks, self._clock, self._oom, None, self._on_exit
                )
                self._watches[process] = (candidate, watch)
        self._forget_ownerless_dead()
        self._publish()

    def _drop_attached(self, jobs: list[ObservedJob]) -> None:
        """A process whose shim came late is an ordinary rank; one of an older generation is history."""
        if not self._watches:
            return
        current = {(job.place.uid, job.place.job, job.place.generation) for job in jobs}
        for process, (candidate, _) in list(self._watches.items()):
            owner = self._owner.get(process)
            if (owner is not None and owner not in current) or _has_attached(candidate, jobs):
                self._remove(process)
        self._publish()

    def _forget_ownerless_dead(self) -> None:
        for process, (_, watch) in list(self._watches.items()):
            if process not in self._owner:
                watch.view(silent=False)
                if watch.gone:
                    self._remove(process)

    def _remove(self, process: tuple[int, int]) -> None:
        self._watches.pop(process)[1].close()
        self._owner.pop(process, None)

    def _publish(self) -> None:
        self.found = tuple(
            UnobservedProcess(candidate.rank, candidate.pid, REASON)
            for candidate, watch in self._watches.values()
            if not watch.gone
        )


def candidates(run: str | None, uid: int) -> list[Candidate]:
    """Every visible process that carries RANK and WORLD_SIZE, of this run or of this user."""
    now_ticks = time.clock_gettime(time.CLOCK_BOOTTIME) * CLOCK_TICKS
    found = []
    for name in list_names("/proc"):
        if name.isdecimal() and _owned(name, run, uid):
            candidate = _candidate(int(name), now_ticks)
            if candidate is not None and (run is None or candidate.run == run):
                found.append(candidate)
    return found


def select(found: list[Candidate], attached: set[tuple[int, int]]) -> list[Candidate]:
    """Those that are ranks of their own: old enough, no shim, and no parent of the same rank."""
    by_pid = {candidate.pid: candidate for candidate in found}
    return [
        c
        for c in found
        if c.age_s >= MIN_AGE_S
        and (c.pid, c.start_ticks) not in attached
        and (c.parent not in by_pid or by_pid[c.parent].rank != c.rank)
    ]


def owner_of(candidate: Candidate, jobs: list[ObservedJob]) -> ObservedJob | None:
    """The job that it belongs to: one whose observed ranks have the same parent, else the only one of the
    same run and world size that lacks this rank. Without a run tag only the parent is believed: another
    job of the same size may run beside it."""
    for job in jobs:
        if candidate.parent in job.parents:
            return job
    lacking = [
        job
        for job in jobs
        if candidate.run
        and (job.run, job.world_size) == (candidate.run, candidate.world_size)
        and candidate.rank not in job.ranks
    ]
    return lacking[0] if len(lacking) == 1 else None


def _has_attached(candidate: Candidate, jobs: list[ObservedJob]) -> bool:
    """Its rank is observed by now: itself, or the trainer below a wrapper script."""
    return any(
        candidate.rank in job.ranks and (job.world_size, job.run) == (candidate.world_size, candidate.run)
        for job in jobs
    )


def _owned(name: str, run: str | None, uid: int) -> bool:
    if run is not None or uid == 0:
        return True
    try:
        return os.stat(f"/proc/{name}").st_uid == uid
    except OSError:
        return False


def _candidate(pid: int, now_ticks: float) -> Candidate | None:
    environment = read_text(f"/proc/{pid}/environ")
    if not environment or "RANK=" not in environment:
        return None
    pairs = (entry.partition("=") for entry in environment.split("\0"))
    values = {key: value for key, _, value in pairs}
    rank, size = values.get("RANK", ""), values.get("WORLD_SIZE", "")
    stat = process_stat(pid)
    if not rank.isdecimal() or not size.isdecimal() or stat is None or stat.state == "Z":
        return None
    local = values.get("LOCAL_RANK", "")
    return Candidate(
        pid,
        stat.parent,
        stat.start_ticks,
        int(rank),
        int(size),
        int(local) if local.isdecimal() else -1,
        values.get("SCOUTD_RUN", ""),
        (now_ticks - stat.start_ticks) / CLOCK_TICKS,
    )
