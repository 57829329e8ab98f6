"""Jobs that are not there yet: ranks that wait inside ``init_process_group`` for one that has not called it.

A job has a name only when all its ranks have met. Until then a rank that waits has a file that names rank and
world size and no backend (``shim.starting``). Who has none is *late*: a process of the same launcher that
carries the rank in its environment, or, where a launcher forks, the only child of it that runs the same
program and does not wait. Where a late rank is not found, nothing is said: it may be on another node, or not
started. Nothing of it moves only if nothing has for ``STILL_NS``: one slow answer of a server is no hang. One
whose stack is inside the call is not late: it has no shim, and waits like the others.

What is found is told to the core as a job of its own, with one meeting at which all ranks have to arrive. It
appears when a rank has waited for ``WAITED_NS``, and ends when nobody waits any more.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from scoutd.agent.evidence import (
    Activity,
    Call,
    CallKind,
    CallState,
    Coordinate,
    Fingerprint,
    GroupView,
    Members,
    NodeReport,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    Source,
    Stack,
)
from scoutd.agent.silence import NOT_STARTED
from scoutd.daemon.clock import NS_PER_S
from scoutd.daemon.observe.activity import SAMPLE_NS, STACK_NS, Sample, moving, summarize, take_sample
from scoutd.daemon.observe.job import UNBELIEVABLE
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.processes import ProcessWatch
from scoutd.daemon.observe.procstat import CLOCK_TICKS, list_names, process_stat, read_text
from scoutd.daemon.observe.rank import ObservedRank
from scoutd.daemon.observe.reader import RankFile
from scoutd.daemon.observe.share import Share
from scoutd.daemon.observe.stacks import StackCapture
from scoutd.daemon.observe.translate import MAX_MEMBERS
from scoutd.daemon.observe.tree import PENDING, opened
from scoutd.daemon.observe.unobserved import Candidate, candidates
from scoutd.proto.shm import Header

WAITED_NS: Final = 2_000_000_000
SCAN_NS: Final = 2_000_000_000
MOST_SCAN_NS: Final = 16_000_000_000
"""/proc is read less and less often while nobody else is found: ranks may wait for another node for hours."""

STILL_NS: Final = 20_000_000_000
MOST_FILES: Final = 1024
MEETING: Final = 1
"""Identity of the meeting; no process group has it, theirs are hashes."""

CALL: Final = "init_process_group"
DIGITS: Final = re.compile(r"\d+")
Process = tuple[int, int, int]
"""uid, pid, start ticks."""


class Late:
    """The process of a rank that has not come; it runs since ``began_ns``."""

    def __init__(self, rank: int, local_rank: int, watch: ProcessWatch, began_ns: int) -> None:
        self.rank: Final = rank
        self.local_rank: Final = local_rank
        self.watch: Final = watch
        self.began_ns: Final = began_ns
        self.stack: tuple[Stack, int] | None = None
        self._samples: Final[deque[Sample]] = deque(maxlen=16)
        self._shapes: Final[deque[int]] = deque(maxlen=5)
        self._shape_ns = 0
        self._recent: Final[deque[tuple[int, Activity]]] = deque(maxlen=128)

    @property
    def inside(self) -> bool:
        """Its stack, where one was read, is inside the call."""
        return self.stack is not None and any(frame.function == CALL for frame in self.stack[0].frames)

    def activity(self, stacks: StackCapture, shape_ns: int, now_ns: int) -> Activity | None:
        """The most that has moved at one time since ``STILL_NS`` ago, in any thread: nobody communicates yet.
        Its stack is read every ``shape_ns``."""
        if now_ns - self._shape_ns >= shape_ns:
            self._shape_ns = now_ns
            stacks.fingerprint_later(self, self._shapes.append)
        if not self._samples or now_ns - self._samples[-1].at_ns >= SAMPLE_NS:
            self._samples.append(take_sample(self.watch.pid, _threads(self.watch.pid), now_ns))
            newest = summarize(list(self._samples), moving(list(self._shapes)))
            if newest is not None:
                self._recent.append((now_ns, newest))
        while self._recent and now_ns - self._recent[0][0] > STILL_NS:
            self._recent.popleft()
        return _most([activity for _, activity in self._recent])


@dataclass
class Start:
    """One job that is starting. ``waiting`` and ``late`` by rank; ``came``: ranks that were late and are so
    no more. ``told``: some rank was reported as late."""

    name: str
    run: str
    size: int
    waiting: dict[int, ObservedRank] = field(default_factory=dict)
    late: dict[int, Late] = field(default_factory=dict)
    came: set[int] = field(default_factory=set)
    told: bool = False
    next_scan_ns: int = -(1 << 62)
    scan_ns: int = SCAN_NS

    @property
    def parents(self) -> set[int]:
        return {each.parent for each in self.waiting.values() if each.parent}

    def since_ns(self) -> int:
        return min(each.file.header.attached_ns for each in self.waiting.values())


class Starting:
    """The starts on this node. ``run``: of this run only."""

    def __init__(
        self,
        root: Path,
        run: str | None,
        clock: Callable[[], int],
        stacks: StackCapture,
        on_exit: Callable[[], None],
        share: Share | None = None,
    ) -> None:
        self._root: Final = root
        self._run: Final = run
        self._clock: Final = clock
        self._stacks: Final = stacks
        self._on_exit: Final = on_exit
        self._share: Final = share
        self._oom: Final = OomLedger()
        self._files: Final[dict[Process, ObservedRank]] = {}
        self._starts: Final[dict[str, Start]] = {}
        self._unseen: Final[set[int]] = set()
        """Processes that wait without a file."""

    def refresh(self, pending: Iterable[Process], attached: set[int], now_ns: int) -> None:
        """``pending``: files without identity; ``attached``: pids of ranks that have one."""
        self._open(set(pending))
        if not self._files:
            self._unseen.clear()
        for start in self._starts.values():
            start.waiting = {}
        for observed in self._files.values():
            header = observed.file.header
            if _starts(header) and observed.watch.view(silent=False).status is not ProcessStatus.GONE:
                name = f"starting-{header.run or observed.parent}"
                start = self._starts.setdefault(name, Start(name, header.run, header.world_size))
                if start.size == header.world_size:
                    start.waiting[header.rank] = observed
        for start in list(self._starts.values()):
            self._note_arrivals(start, attached)
            if start.waiting and now_ns - start.since_ns() >= WAITED_NS:
                self._find_late(start, attached, now_ns)
            elif not start.waiting and not start.told:
                self._forget(start)

    def reports(
        self, node: str, incarnation: int, version: int, now_ns: int
    ) -> list[tuple[Start, NodeReport]]:
        """One report per start with a late rank; one more, in which all have moved, when it is over."""
        found = []
        for start in list(self._starts.values()):
            known = tuple(sorted(start.late))
            if start.waiting and known and now_ns - start.since_ns() >= WAITED_NS:
                start.told = True
                ranks = self._ranks(start, now_ns)
            elif start.told and (not start.waiting or not known):
                ranks = tuple(_moved(rank) for rank in sorted(start.came))
                self._forget(start)
            else:
                continue
            found.append((start, NodeReport(start.name, 1, node, incarnation, version, start.size, ranks)))
        return found

    async def capture(self, job: str, rank: int, native: bool) -> None:
        start = self._starts.get(job)
        late = start.late.get(rank) if start is not None else None
        if late is not None:
            await self._stacks.capture(late, native)

    def close(self) -> None:
        for start in list(self._starts.values()):
            self._forget(start)
        for process in list(self._files):
            self._files.pop(process).close()

    def _open(self, pending: set[Process]) -> None:
        for process in [p for p in self._files if p not in pending]:
            self._files.pop(process).close()
        for process in pending.difference(self._files):
            if len(self._files) < MOST_FILES:
                self._open_one(process)
        for process, observed in list(self._files.items()):
            try:
                observed.file.refresh_header()
            except UNBELIEVABLE:
                self._files.pop(process).close()

    def _open_one(self, process: Process) -> None:
        uid, pid, ticks = process
        try:
            with opened(self._root, str(uid), PENDING, uid=uid) as fd:
                file = RankFile(f"{pid}-{ticks}", fd, uid)
        except UNBELIEVABLE:
            return
        header = file.header
        ours = self._run is None or header.run == self._run
        if not ours or (self._share is not None and not self._share.holds(header.rank, header.world_size)):
            file.close()
            return
        self._files[process] = ObservedRank(file, self._clock, self._oom, self._on_exit)

    def _note_arrivals(self, start: Start, attached: set[int]) -> None:
        """Late ranks that wait by now, or are through, have come."""
        for rank, late in list(start.late.items()):
            if late.inside:
                self._unseen.add(late.watch.pid)
            if rank in start.waiting or late.watch.pid in attached or late.inside:
                start.came.add(rank)
                start.late.pop(rank).watch.close()

    def _find_late(self, start: Start, attached: set[int], now_ns: int) -> None:
        if now_ns < start.next_scan_ns or len(start.waiting) >= start.size:
            return
        inside = attached | self._unseen | {each.watch.pid for each in self._files.values()}
        known = {each.watch.pid for each in start.late.values()}
        start.scan_ns = min(2 * start.scan_ns, MOST_SCAN_NS)
        for candidate in _late(start, inside, os.getuid(), self._share):
            if candidate.pid not in known and candidate.rank not in start.late:
                watch = ProcessWatch(
                    candidate.pid, candidate.start_ticks, self._clock, self._oom, None, self._on_exit
                )
                began_ns = now_ns - int(candidate.age_s * NS_PER_S)
                start.late[candidate.rank] = Late(candidate.rank, candidate.local_rank, watch, began_ns)
                start.scan_ns = SCAN_NS
        start.next_scan_ns = now_ns + start.scan_ns

    def _ranks(self, start: Start, now_ns: int) -> tuple[RankReport, ...]:
        waited = now_ns - start.since_ns()
        waiting = [_waits(each, start.size, now_ns) for each in start.waiting.values()]
        shape_ns = STACK_NS * len(start.late)
        late = [self._is_late(each, waited, shape_ns, now_ns) for each in start.late.values()]
        return tuple(sorted(waiting + late, key=lambda each: each.rank))

    def _is_late(self, late: Late, waited_ns: int, shape_ns: int, now_ns: int) -> RankReport:
        waited_ns = max(0, min(waited_ns, now_ns - late.began_ns))
        process = late.watch.view(silent=True)
        gone = process.status is ProcessStatus.GONE
        stack = late.stack
        return RankReport(
            rank=late.rank,
            pid=late.watch.pid,
            local_rank=late.local_rank,
            device="",
            observed=True,
            process=process,
            coordinates=(Coordinate(0, 0, Phase.INIT, NOT_STARTED, waited_ns),),
            silent_ns=waited_ns,
            activity=None if gone else late.activity(self._stacks, shape_ns, now_ns),
            stack=None if stack is None else replace(stack[0], age_ns=now_ns - stack[1]),
        )

    def _forget(self, start: Start) -> None:
        for late in start.late.values():
            late.watch.close()
        self._starts.pop(start.name, None)


def _waits(observed: ObservedRank, size: int, now_ns: int) -> RankReport:
    """The rank is inside the call, at the meeting of all."""
    header = observed.file.header
    age = max(0, now_ns - header.attached_ns)
    return RankReport(
        rank=header.rank,
        pid=observed.watch.pid,
        local_rank=header.local_rank,
        device=header.device,
        observed=True,
        process=observed.watch.view(silent=True),
        coordinates=(Coordinate(0, 1, Phase.INIT, CALL, age, waiting=True),),
        silent_ns=age,
        attached_age_ns=age,
        calls=(
            Call(
                MEETING,
                1,
                CallKind.COLLECTIVE,
                CallState.PENDING,
                Fingerprint(CALL, "", None, None),
                "",
                age,
                True,
                Source.PUBLIC,
            ),
        ),
        groups=(GroupView(MEETING, "", "all ranks", "store", Members(((0, 1, size),)), 1, None, age),),
    )


def _moved(rank: int) -> RankReport:
    """A rank that was late and is so no more."""
    at = Coordinate(0, 2, Phase.INIT, f"after {CALL}", 0)
    return RankReport(
        rank, 0, -1, "", True, ProcessView(ProcessStatus.RUNNING), coordinates=(at,), silent_ns=0
    )


def _starts(header: Header) -> bool:
    """The file is that of a rank inside the call, and its numbers make sense."""
    return header.backend == "" and header.rank < header.world_size <= MAX_MEMBERS


def _late(start: Start, inside: set[int], uid: int, share: Share | None) -> list[Candidate]:
    """Processes that carry a rank of this start and do not wait; else the only child of the launcher that
    does not, where one rank is missing."""
    parents = start.parents
    found = [
        c
        for c in candidates(start.run or None, uid)
        if c.rank not in start.waiting
        and c.rank < c.world_size == start.size
        and c.pid not in inside
        and (c.parent in parents or bool(start.run))
        and (share is None or share.holds(c.rank, c.world_size))
    ]
    by_pid = {c.pid: c for c in found}
    found = [c for c in found if c.parent not in by_pid or by_pid[c.parent].rank != c.rank]
    if found or start.size - len(start.waiting) != 1 or len(parents) != 1:
        return found
    (parent,) = parents
    programs = {_program(each.watch.pid) for each in start.waiting.values()} - {""}
    children = [pid for pid in _children(parent) if pid not in inside and _program(pid) in programs]
    stat = process_stat(children[0]) if len(children) == 1 else None
    rank = next(rank for rank in range(start.size) if rank not in start.waiting)
    if stat is None or stat.state == "Z" or (share is not None and not share.holds(rank, start.size)):
        return []
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / CLOCK_TICKS
    return [Candidate(children[0], stat.parent, stat.start_ticks, rank, start.size, rank, start.run, age_s)]


def _children(parent: int) -> list[int]:
    found = []
    for thread in list_names(f"/proc/{parent}/task"):
        text = read_text(f"/proc/{parent}/task/{thread}/children") or ""
        found += [int(pid) for pid in text.split()]
    return found


def _program(pid: int) -> str:
    """The command line without its numbers, in which siblings may differ; empty where it is not known."""
    return DIGITS.sub("", read_text(f"/proc/{pid}/cmdline") or "")


def _threads(pid: int) -> frozenset[int]:
    return frozenset(int(name) for name in list_names(f"/proc/{pid}/task") if name.isdecimal())


def _most(seen: list[Activity]) -> Activity | None:
    """The highest of each; None of nothing."""
    if not seen:
        return None
    stacks = [each.stack_moving for each in seen if each.stack_moving is not None]
    return Activity(
        seen[-1].window_ns,
        max(each.cpu_ratio for each in seen),
        max(each.io_bytes_per_s for each in seen),
        any(stacks) if stacks else None,
    )
