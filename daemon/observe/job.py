"""One generation of one job on this node: its ranks' files, opened, checked and read.

A file that cannot be believed is a warning and no rank. Once a rank of the job is gone, all ranks are read
whole, because what the others wrote around that moment is what the death is judged by.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from scoutd.agent.evidence import Contested, ProcessStatus, RankReport
from scoutd.daemon.observe.meetings import Meetings
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.rank import ObservedRank
from scoutd.daemon.observe.reader import RankFile
from scoutd.daemon.observe.share import Share
from scoutd.daemon.observe.tree import RANK_PREFIX, Place, opened
from scoutd.proto.replay import Request
from scoutd.proto.shm import Header, LayoutError

UNBELIEVABLE: Final = (OSError, LayoutError)
"""What a file that cannot be believed raises."""

KEY: Final = re.compile(r"[0-9a-f]{64}")
MAX_KEYS: Final = 2
MAX_SEEDS: Final = 32
SPAN_NS: Final = 10_000_000_000
"""Where nobody says how many ranks a node has, ranks that are missing after this time are elsewhere."""


@dataclass(frozen=True)
class Discovery:
    """What the job's shims say about its other agents. ``shared``: the job has ranks that are not observed
    here. ``keys``: of 32 bytes, one unless a file lies. ``seeds``: addresses."""

    shared: bool = False
    keys: tuple[bytes, ...] = ()
    seeds: tuple[str, ...] = ()


class ObservedJob:
    """``run``: None observes every run, else the ranks of other runs are not of this job's observer; nor are
    those outside of ``share``, where there is one."""

    def __init__(
        self,
        place: Place,
        clock: Callable[[], int],
        oom: OomLedger,
        run: str | None,
        on_exit: Callable[[], None],
        share: Share | None = None,
    ) -> None:
        self.place: Final = place
        self.ranks: dict[int, ObservedRank] = {}
        self._clock: Final = clock
        self._oom: Final = oom
        self._run: Final = run
        self._on_exit: Final = on_exit
        self._share: Final = share
        self._since_ns: Final = clock()
        self._foreign: dict[int, int] = {}
        self._bad: dict[int, str] = {}
        self._someone_gone = False
        self._meetings: Final = Meetings()

    @property
    def warnings(self) -> tuple[str, ...]:
        torn = (
            f"{self.place}/{RANK_PREFIX}{rank}: torn records in {', '.join(sorted(found.file.torn))}"
            for rank, found in self.ranks.items()
            if found.file.torn
        )
        return (*self._bad.values(), *torn)

    @property
    def world_size(self) -> int:
        return max((found.file.header.world_size for found in self.ranks.values()), default=0)

    @property
    def local_world_size(self) -> int:
        """Ranks that this node should show; all of them where no header says how many."""
        if self._share is not None:
            return self._share.size(self.world_size)
        sizes = (found.file.header.local_world_size for found in self.ranks.values())
        return max(sizes, default=0) or self.world_size

    @property
    def parents(self) -> set[int]:
        """Parent processes of the ranks: their launcher."""
        return {found.parent for found in self.ranks.values() if found.parent}

    @property
    def run(self) -> str:
        return next((found.file.header.run for found in self.ranks.values()), "")

    def update(self, inodes: dict[int, int]) -> None:
        """The open files are those of the directory: new and replaced ones opened, vanished ones closed."""
        for rank in [r for r, found in self.ranks.items() if inodes.get(r) != found.file.inode]:
            self.ranks.pop(rank).close()
        self._bad = {}
        missing = [
            rank
            for rank, inode in inodes.items()
            if rank not in self.ranks and self._foreign.get(rank) != inode
        ]
        if missing:
            self._open(missing)

    def reports(self, now_ns: int) -> list[RankReport]:
        """One report per rank that can be believed."""
        reports = []
        whole = self._someone_gone
        for rank, found in list(self.ranks.items()):
            try:
                report = found.report(now_ns, whole)
            except UNBELIEVABLE as error:
                self._refuse(rank, error)
                self.ranks.pop(rank).close()
                continue
            reports.append(report)
        self._someone_gone = any(r.process.status is ProcessStatus.GONE for r in reports)
        if self._someone_gone and not whole:
            return self.reports(now_ns)
        return reports

    def contested(self, reports: list[RankReport], now_ns: int) -> tuple[Contested, ...]:
        """Places at which the ranks of these reports called different things."""
        try:
            self._meetings.look(self.ranks, reports, now_ns)
        except UNBELIEVABLE:
            pass  # the rank's own report says so in the next pass
        return self._meetings.contested

    def announce(self, now_ns: int, interval_ns: int, address: str) -> None:
        for rank, found in self.ranks.items():
            try:
                found.file.announce(os.getpid(), now_ns, interval_ns, address)
            except UNBELIEVABLE as error:
                self._refuse(rank, error)

    def request_replay(self, request: Request) -> dict[int, bool]:
        """By rank: the request lies in its file; False where that may not be written."""
        told = {}
        for rank, found in self.ranks.items():
            try:
                told[rank] = found.file.request(request)
            except UNBELIEVABLE as error:
                self._refuse(rank, error)
        return told

    def topology(self) -> dict[int, dict[str, Any]]:
        return {rank: found.topology for rank, found in self.ranks.items() if found.topology}

    def discovery(self, now_ns: int) -> Discovery:
        keys: dict[bytes, None] = {}
        seeds: dict[str, None] = {}
        for _, found in sorted(self.ranks.items()):
            record = found.file.discovery.first()
            if record is not None:
                if KEY.fullmatch(record.key):
                    keys[bytes.fromhex(record.key)] = None
                seeds.update((seed, None) for seed in record.seeds.split(",") if seed)
        return Discovery(self._spans(now_ns), tuple(keys)[:MAX_KEYS], tuple(seeds)[:MAX_SEEDS])

    def _spans(self, now_ns: int) -> bool:
        """The job has ranks elsewhere."""
        if self._share is not None:
            return self._share.of > 1
        declared = max((found.file.header.local_world_size for found in self.ranks.values()), default=0)
        if declared:
            return declared < self.world_size
        return len(self.ranks) < self.world_size and now_ns - self._since_ns >= SPAN_NS

    def disabled(self) -> dict[int, str]:
        beats = ((rank, found.file.heartbeat.first()) for rank, found in self.ranks.items())
        return {rank: beat.disabled for rank, beat in beats if beat is not None and beat.disabled}

    def shim_cost(self) -> dict[int, tuple[int, int]]:
        beats = ((rank, found.file.heartbeat.first()) for rank, found in self.ranks.items())
        return {rank: (beat.cost_ns, beat.boundaries) for rank, beat in beats if beat is not None}

    def close(self) -> None:
        for found in self.ranks.values():
            found.close()
        self.ranks.clear()

    def _open(self, ranks: list[int]) -> None:
        try:
            with opened(self.place.root, *self.place.parts, uid=self.place.uid) as fd:
                for rank in ranks:
                    self._open_rank(rank, fd)
        except OSError as error:
            for rank in ranks:
                self._refuse(rank, error)

    def _open_rank(self, rank: int, dir_fd: int) -> None:
        try:
            file = RankFile(f"{RANK_PREFIX}{rank}", dir_fd, self.place.uid)
        except FileNotFoundError:
            return
        except UNBELIEVABLE as error:
            self._refuse(rank, error)
            return
        header = file.header
        if not self._is_ours(header):
            self._foreign[rank] = file.inode
            file.close()
            return
        if (header.job, header.generation, header.rank) != (self.place.job, self.place.generation, rank):
            says = f"{header.job}/{header.generation}/{RANK_PREFIX}{header.rank}"
            self._refuse(rank, LayoutError(f"its header says {says}"))
            file.close()
            return
        self.ranks[rank] = ObservedRank(file, self._clock, self._oom, self._on_exit)

    def _is_ours(self, header: Header) -> bool:
        if self._run is not None and header.run != self._run:
            return False
        return self._share is None or self._share.holds(header.rank, header.world_size)

    def _refuse(self, rank: int, error: Exception) -> None:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self._bad[rank] = f"{self.place}/{RANK_PREFIX}{rank}: {text}"
