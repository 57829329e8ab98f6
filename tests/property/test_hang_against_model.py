"""The wait-for rule against the dumb model: every awaited culprit is named, and never anybody else."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scoutd.agent.core import Core
from scoutd.agent.events import CaptureStack, Observed, Report, Tick
from scoutd.agent.evidence import NodeReport, RankReport, Stack
from scoutd.agent.settings import NS_PER_S, Settings
from scoutd.agent.verdict import Cause, State, Verdict
from tests.property.program import Model, Op

AXES = ["world", "tp", "dp"]
OPS = st.one_of(
    st.builds(Op, st.just("compute")),
    st.builds(Op, st.sampled_from(["sync", "start", "await"]), st.sampled_from(AXES)),
)


def judge(reports: list[RankReport]) -> list[Verdict]:
    core = Core(Settings(stall_timeout_s=5))
    found: list[Verdict] = []
    for k in range(8):
        now = (100 + k) * NS_PER_S // 4
        report = NodeReport("job", 1, "node", 1, k, len(reports), tuple(reports))
        effects = core.step(Observed(report), now) + core.step(Tick(), now)
        found += [e.verdict for e in effects if isinstance(e, Report)]
        asked = {e.rank for e in effects if isinstance(e, CaptureStack)}
        reports = [_with_stack(r) if r.rank in asked else r for r in reports]
    return [v for v in found if v.state is State.CONFIRMED]


def _with_stack(report: RankReport) -> RankReport:
    """The stack tells the truth: the host is inside a wait, or it is not."""
    waits = any(call.waiting for call in report.calls)
    return replace(report, stack=Stack((), 0, True, waits))


@settings(max_examples=400, deadline=None)
@given(
    dp=st.integers(2, 4),
    tp=st.integers(1, 3),
    ops=st.lists(OPS, min_size=1, max_size=14),
    faults=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 13)), min_size=1, max_size=2),
    seed=st.integers(0, 2**32),
)
def test_awaited_culprits_are_named_and_nobody_else(
    dp: int, tp: int, ops: list[Op], faults: list[tuple[int, int]], seed: int
) -> None:
    model = Model(dp, tp, ops, {rank % (dp * tp): at for rank, at in faults})
    model.run()
    reports = model.reports(silent_s=6)
    random.Random(seed).shuffle(reports)
    named = {i.rank for v in judge(reports) for i in v.implicated}
    assert named == model.culprits()


@settings(max_examples=100, deadline=None)
@given(dp=st.integers(2, 4), tp=st.integers(1, 3), ops=st.lists(OPS, min_size=1, max_size=14))
def test_without_a_fault_nobody_is_named(dp: int, tp: int, ops: list[Op]) -> None:
    model = Model(dp, tp, ops, {})
    model.run()
    verdicts = judge(model.reports(silent_s=6))
    assert [i for v in verdicts for i in v.implicated] == []
    assert all(v.cause is not Cause.GROUP_STALL for v in verdicts)


@settings(max_examples=100, deadline=None)
@given(
    ops=st.lists(OPS, min_size=3, max_size=14),
    rank=st.integers(0, 5),
    at=st.integers(0, 13),
    seed=st.integers(0, 2**32),
)
def test_the_order_of_reports_is_irrelevant(ops: list[Op], rank: int, at: int, seed: int) -> None:
    model = Model(3, 2, ops, {rank: at})
    model.run()
    reports = model.reports(silent_s=6)
    shuffled = random.Random(seed).sample(reports, len(reports))
    assert [v.id for v in judge(reports)] == [v.id for v in judge(shuffled)]
