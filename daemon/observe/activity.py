"""What the operating system says of a silent rank: CPU, I/O, a moving stack.

Only ranks that somebody asked for are sampled. Counted are the CPU time of the threads that publish
coordinates and of child processes (DataLoader workers, compilers), but not of the trainer's other threads:
communication threads spin while the rank hangs. Every sub-window is the step between two samples; what did
not grow in most of them is no activity but a burst, and counts as zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final
from weakref import WeakKeyDictionary

from scoutd.agent.evidence import Activity, ProcessStatus, RankReport
from scoutd.daemon.observe.job import ObservedJob
from scoutd.daemon.observe.procstat import CLOCK_TICKS, list_names, process_stat, read_stat, read_text
from scoutd.daemon.observe.rank import ObservedRank
from scoutd.daemon.observe.stacks import StackCapture

SAMPLE_NS: Final = 240_000_000
WINDOW_NS: Final = 2_000_000_000
REPORT_AFTER_NS: Final = 1_000_000_000
STACK_NS: Final = 1_000_000_000
STACKS: Final = 5
"""Stacks that are compared; three are needed for a statement."""
MAX_CHILDREN: Final = 128
NS_PER_TICK: Final = 1_000_000_000 // CLOCK_TICKS


@dataclass(frozen=True)
class Sample:
    """Totals at ``at_ns``. They may fall when a child ends; a fall counts as no growth."""

    at_ns: int
    cpu_ns: int
    io_bytes: int


class _Track:
    """One sampled rank: its last samples and the last shapes of its stack."""

    def __init__(self) -> None:
        self.samples: Final[deque[Sample]] = deque(maxlen=16)
        self.stacks: Final[deque[int]] = deque(maxlen=STACKS)
        self.stack_ns = 0


class ActivitySampler:
    """Samples the selected ranks once per pass, and their stacks once a second where a loop runs."""

    def __init__(self, clock: Callable[[], int], stacks: StackCapture) -> None:
        self._clock: Final = clock
        self._stacks: Final = stacks
        self._tracks: Final[WeakKeyDictionary[ObservedRank, _Track]] = WeakKeyDictionary()
        """Weak: the file of a rank may be replaced at any time, and takes its track along."""
        self._selected: Final[dict[ObservedJob, frozenset[int]]] = {}

    def select(self, job: ObservedJob, ranks: tuple[int, ...]) -> None:
        """From now on these ranks of the job are sampled, and no others."""
        self._selected[job] = frozenset(ranks)
        for observed in job.ranks.values():
            if observed.rank not in self._selected[job]:
                self._tracks.pop(observed, None)

    def forget(self, job: ObservedJob) -> None:
        self._selected.pop(job, None)
        for observed in job.ranks.values():
            self._tracks.pop(observed, None)

    def attach(self, job: ObservedJob, reports: list[RankReport], now_ns: int) -> list[RankReport]:
        """The same reports, those of selected ranks with their activity once a second is covered."""
        selected = self._selected.get(job)
        if not selected:
            return reports
        return [
            replace(report, activity=self._activity(job.ranks[report.rank], now_ns))
            if report.rank in selected and report.process.status is ProcessStatus.RUNNING
            else report
            for report in reports
        ]

    def _activity(self, observed: ObservedRank, now_ns: int) -> Activity | None:
        track = self._tracks.get(observed)
        if track is None:
            track = self._tracks[observed] = _Track()
        if observed.watch.visible and (not track.samples or now_ns - track.samples[-1].at_ns >= SAMPLE_NS):
            track.samples.append(take_sample(observed.watch.pid, observed.threads, now_ns))
            while now_ns - track.samples[0].at_ns > WINDOW_NS + SAMPLE_NS:
                track.samples.popleft()
        if now_ns - track.stack_ns >= STACK_NS:
            track.stack_ns = now_ns
            self._stacks.fingerprint_later(observed, track.stacks.append)
        return summarize(list(track.samples), moving(list(track.stacks)))


def summarize(samples: list[Sample], stack_moving: bool | None) -> Activity | None:
    """The activity over the samples' span, None while it is shorter than a second."""
    window = samples[-1].at_ns - samples[0].at_ns if samples else 0
    if window < REPORT_AFTER_NS:
        return None
    steps = list(pairwise(samples))
    cpu = _steady([max(0, b.cpu_ns - a.cpu_ns) for a, b in steps])
    io = _steady([max(0, b.io_bytes - a.io_bytes) for a, b in steps])
    return Activity(window, cpu / window, io * 1_000_000_000 / window, stack_moving)


def _steady(growth: list[int]) -> int:
    """The sum, or zero where fewer than half of the sub-windows grew."""
    return sum(growth) if 2 * sum(1 for step in growth if step) >= len(growth) else 0


def moving(stacks: list[int]) -> bool | None:
    """The stack changed in at least half of the steps; None under three stacks."""
    if len(stacks) < 3:
        return None
    changes = sum(1 for a, b in pairwise(stacks) if a != b)
    return 2 * changes >= len(stacks) - 1


def take_sample(pid: int, threads: frozenset[int], now_ns: int) -> Sample:
    """The totals of a rank and its descendants now; what cannot be read counts as zero."""
    own = process_stat(pid)
    ticks = own.reaped_ticks if own is not None else 0
    io_bytes = _io_bytes(pid)
    for thread in threads | {pid}:
        found = read_stat(f"/proc/{pid}/task/{thread}/stat")
        ticks += found.cpu_ticks if found is not None else 0
    for child in descendants(pid):
        found = process_stat(child)
        ticks += found.cpu_ticks + found.reaped_ticks if found is not None else 0
        io_bytes += _io_bytes(child)
    return Sample(now_ns, ticks * NS_PER_TICK, io_bytes)


def descendants(pid: int) -> list[int]:
    """Child processes of all generations, at most MAX_CHILDREN of them."""
    found: list[int] = []
    todo = [pid]
    while todo and len(found) < MAX_CHILDREN:
        parent = todo.pop()
        for thread in list_names(f"/proc/{parent}/task"):
            text = read_text(f"/proc/{parent}/task/{thread}/children")
            children = [int(name) for name in (text or "").split()]
            found.extend(children)
            todo.extend(children)
    return found[:MAX_CHILDREN]


def _io_bytes(pid: int) -> int:
    """Bytes moved so far: through calls (pipes, sockets, page cache) or to disks, the larger."""
    values: dict[str, int] = {}
    for line in (read_text(f"/proc/{pid}/io") or "").splitlines():
        key, _, value = line.partition(":")
        values[key] = int(value)
    calls = values.get("rchar", 0) + values.get("wchar", 0)
    return max(calls, values.get("read_bytes", 0) + values.get("write_bytes", 0))
