"""A dumb model of a parallel job, and the truth about who hangs in it.

Ranks stand on a grid (dp × tp); every step is a list of operations that all ranks run in one order, each in
its own group of one dimension: synchronous collectives, asynchronous ones that are awaited later, and
compute. A hung rank stops for ever before one of its operations. The model runs until nothing moves and
then tells what every rank would have published. It knows nothing of graphs or roots.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from scoutd.agent.evidence import (
    Call,
    CallKind,
    CallState,
    Coordinate,
    Fingerprint,
    GroupView,
    Members,
    Phase,
    ProcessStatus,
    ProcessView,
    RankReport,
    Source,
)
from scoutd.agent.settings import NS_PER_S


@dataclass(frozen=True)
class Op:
    """``kind``: sync, start (asynchronous), await (the oldest start of that axis) or compute."""

    kind: str
    axis: str = ""


@dataclass
class Rank:
    rank: int
    at: int = 0
    hung: bool = False
    blocked_in: tuple[int, int] | None = None
    started: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    enqueued: dict[int, int] = field(default_factory=dict)
    open: list[tuple[int, int]] = field(default_factory=list)


class Model:
    def __init__(self, dp: int, tp: int, ops: list[Op], hangs: dict[int, int]) -> None:
        self.ops = ops
        self.hangs = hangs
        self.ranks = [Rank(r) for r in range(dp * tp)]
        self.members: dict[int, tuple[int, ...]] = {}
        self.group_of: dict[tuple[int, str], int] = {}
        identities = count(1)
        for axis, groups in {
            "world": [tuple(range(dp * tp))],
            "tp": [tuple(range(d * tp, d * tp + tp)) for d in range(dp)],
            "dp": [tuple(range(t, dp * tp, tp)) for t in range(tp)],
        }.items():
            for members in groups:
                identity = next(identities)
                self.members[identity] = members
                for rank in members:
                    self.group_of[(rank, axis)] = identity

    def run(self) -> None:
        while sum(self._step(rank) for rank in self.ranks):
            pass

    def _complete(self, place: tuple[int, int]) -> bool:
        group, sequence = place
        return all(self.ranks[r].enqueued.get(group, 0) >= sequence for r in self.members[group])

    def _step(self, rank: Rank) -> bool:
        """One move of one rank; False if it cannot move."""
        if rank.hung or rank.at >= len(self.ops):
            return False
        if rank.blocked_in is not None:
            if not self._complete(rank.blocked_in):
                return False
            rank.open.remove(rank.blocked_in)
            rank.blocked_in = None
            rank.at += 1
            return True
        if self.hangs.get(rank.rank) == rank.at:
            rank.hung = True
            return False
        self._enter(rank, self.ops[rank.at])
        return True

    def _enter(self, rank: Rank, op: Op) -> None:
        if op.kind == "compute":
            rank.at += 1
            return
        group = self.group_of[(rank.rank, op.axis)]
        if op.kind == "await":
            started = rank.started.get(op.axis, [])
            if not started:
                rank.at += 1
                return
            rank.blocked_in = started.pop(0)
            return
        sequence = rank.enqueued.get(group, 0) + 1
        rank.enqueued[group] = sequence
        rank.open.append((group, sequence))
        if op.kind == "start":
            rank.started.setdefault(op.axis, []).append((group, sequence))
            rank.at += 1
        else:
            rank.blocked_in = (group, sequence)

    def culprits(self) -> set[int]:
        """Hung ranks that some rank, directly, waits for or has work in flight with."""
        return {
            r.rank
            for r in self.ranks
            if r.hung
            for other in self.ranks
            for group, sequence in other.open
            if r.rank in self.members[group] and r.enqueued.get(group, 0) < sequence
        }

    def reports(self, silent_s: float) -> list[RankReport]:
        return [self._report(rank, int(silent_s * NS_PER_S)) for rank in self.ranks]

    def _report(self, rank: Rank, silent: int) -> RankReport:
        calls = tuple(
            Call(
                group,
                sequence,
                CallKind.COLLECTIVE,
                CallState.PENDING,
                Fingerprint("all_reduce", "float32", 8, "SUM"),
                "[8]",
                silent,
                (group, sequence) == rank.blocked_in,
                Source.PUBLIC,
            )
            for group, sequence in rank.open
            if not self._complete((group, sequence)) or (group, sequence) == rank.blocked_in
        )
        groups = tuple(
            GroupView(
                g,
                str(g),
                f"group{g}",
                "gloo",
                Members(tuple((m, 1, 1) for m in self.members[g])),
                rank.enqueued.get(g, 0),
                None,
                0,
            )
            for g in sorted({self.group_of[(rank.rank, axis)] for axis in ("world", "tp", "dp")})
        )
        waiting = rank.blocked_in is not None
        phase = Phase.COLLECTIVE if waiting else Phase.FORWARD
        return RankReport(
            rank.rank,
            100 + rank.rank,
            rank.rank,
            "cpu",
            True,
            ProcessView(ProcessStatus.RUNNING),
            (Coordinate(1, rank.at, phase, f"op {rank.at}", silent, waiting),),
            0,
            silent,
            0,
            calls,
            groups,
        )
