"""What a look at a large job costs, whatever its ranks do: so much a rank, and nothing for each pair."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import process_time

import pytest

from scoutd.agent.evidence import (
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
)
from scoutd.agent.localize import localize
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.snapshot import snapshot
from scoutd.agent.verdict import Cause

RANKS = 20_000
A_NODE = 8
WORLD, NODE = 1, 1 << 20
SUM = Fingerprint("all_reduce", "float32", 64, "SUM")
RUNNING = ProcessView(ProcessStatus.RUNNING)
KILLED = ProcessView(ProcessStatus.GONE, None, 9, 3 * NS_PER_S)
SILENT = 40 * NS_PER_S
AT = (Coordinate(3, 60, Phase.COLLECTIVE, "all_reduce", SILENT, True),)

MOST_S_PER_RANK = 100e-6
"""Five times what it costs; comparisons of all pairs cost twice as much among so many."""


@cache
def groups(first: int) -> tuple[GroupView, ...]:
    world = GroupView(WORLD, "0", "world", "gloo", Members(((0, 1, RANKS),)), 6, 6, SILENT)
    node = GroupView(NODE + first, "1", "node", "gloo", Members(((first, 1, A_NODE),)), 6, 6, SILENT)
    return world, node


def waits(rank: int, group: int, process: ProcessView = RUNNING) -> RankReport:
    kind, state = CallKind.COLLECTIVE, CallState.PENDING
    call = Call(group, 7, kind, state, SUM, "[64]", SILENT, True, Source.PUBLIC)
    told = groups(rank - rank % A_NODE)
    return RankReport(rank, 1, 0, "cpu", True, process, AT, NS_PER_S, SILENT, 0, (call,), told)


def all_in_one(rank: int) -> RankReport:
    return waits(rank, WORLD)


def killed_at_once(rank: int) -> RankReport:
    return waits(rank, WORLD, KILLED)


def for_each_other(rank: int) -> RankReport:
    """Half of every node waits for all, the other half for its node."""
    return waits(rank, WORLD if rank % 2 else NODE + rank - rank % A_NODE)


@pytest.mark.parametrize(
    ("does", "cause"),
    [
        (all_in_one, Cause.GROUP_STALL),
        (killed_at_once, Cause.PROCESS_DEAD),
        (for_each_other, Cause.COLLECTIVE_ORDER),
    ],
)
def test_a_look_costs_so_much_a_rank(does: Callable[[int], RankReport], cause: Cause) -> None:
    nodes = [range(first, first + A_NODE) for first in range(0, RANKS, A_NODE)]
    reports = [
        (NodeReport("job", 1, f"node-{k}", 1, 1, RANKS, tuple(map(does, ranks))), 0)
        for k, ranks in enumerate(nodes)
    ]
    began = process_time()
    found = localize(snapshot(reports, 5 * NS_PER_S), Settings(), judge_deaths=True)
    cost = process_time() - began
    assert [finding.cause for finding in found.findings] == [cause]
    assert cost < MOST_S_PER_RANK * RANKS
