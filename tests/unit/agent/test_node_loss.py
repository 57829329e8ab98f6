"""A node of which nothing was ever heard: its ranks are those that nobody reports."""

from __future__ import annotations

from scoutd.agent.core import Core
from scoutd.agent.events import Evidence, Observed, Tick
from scoutd.agent.evidence import NodeReport, Phase, Source
from scoutd.agent.verdict import Action, Cause, State, Status, Verdict
from tests.unit.agent.job import Job, cleared, implicated, ns, verdicts


def node(name: str, job: Job, *ranks: int) -> NodeReport:
    return NodeReport("job", 1, name, 1, 1, job.world_size, tuple(job.ranks[r] for r in ranks))


def job_that_waits(*ranks: int) -> Job:
    """Of eight ranks these are in a collective that only the recorder sees, as in DDP's backward."""
    job = Job(8)
    for rank in ranks:
        job.waits(rank, waiting=False, source=Source.RECORDER)
    return job


def judged(
    job: Job, reports: dict[str, tuple[int, ...]], unreachable: set[str], stale: frozenset[str] = frozenset()
) -> list[Verdict]:
    core = Core(job.settings)
    found: list[Verdict] = []
    known = [(node(name, job, *ranks), 0) for name, ranks in reports.items()]
    total = len(reports) + len(unreachable)
    for k in range(8):
        now = ns(100 + 0.25 * k)
        core.step(Observed(known[0][0]), now)
        away = frozenset(unreachable)
        core.step(Evidence(tuple(known), away, 2 * len(reports) > total, stale), now)
        found += [v for v in verdicts(core.step(Tick(), now)) if v.state is not State.OPEN]
    return found


def test_a_node_that_was_cut_off_before_it_reported_is_named() -> None:
    job = job_that_waits(*range(6))
    (verdict,) = judged(job, {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, {"d"})
    assert (verdict.state, verdict.cause, verdict.status) == (
        State.CONFIRMED,
        Cause.NODE_UNREACHABLE,
        Status.ATTRIBUTED,
    )
    assert implicated(verdict) == [6, 7]
    assert {i.node for i in verdict.implicated} == {"d"}
    assert verdict.action is Action.REPLACE_NODE
    assert cleared(verdict) == {rank: [6, 7] for rank in range(6)}
    assert verdict.detection_latency_ns is not None
    assert verdict.detection_latency_ns >= ns(5)


def test_of_two_nodes_without_a_word_nobody_knows_which_has_which_rank() -> None:
    job = job_that_waits(*range(6))
    (verdict,) = judged(job, {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, {"d", "e"})
    assert implicated(verdict) == [6, 7]
    assert {i.node for i in verdict.implicated} == {"d or e"}


def test_ranks_of_a_node_in_reach_are_not_taken_for_those_of_a_lost_one() -> None:
    """Its report is only late: whose ranks are missing is not known."""
    job = job_that_waits(*range(4))
    found = judged(job, {"a": (0, 1), "b": (2, 3)}, {"d"}, frozenset({"c"}))
    assert not any(v.implicated for v in found)


def test_the_verdict_ends_when_the_node_is_back() -> None:
    job = job_that_waits(*range(6))
    core = Core(job.settings)
    reports = [(node(name, job, *ranks), 0) for name, ranks in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5)))]
    found: list[Verdict] = []
    for k in range(12):
        now = ns(100 + 0.25 * k)
        core.step(Observed(reports[0][0]), now)
        back = k > 6
        known = tuple(reports) if not back else (*reports, (node("d", job, 6, 7), 0))
        core.step(Evidence(known, frozenset() if back else frozenset({"d"}), True), now)
        found += verdicts(core.step(Tick(), now))
    assert [v.state for v in found if v.cause is Cause.NODE_UNREACHABLE] == [
        State.OPEN,
        State.CONFIRMED,
        State.RESOLVED,
    ]


def test_a_rank_that_finishes_after_all_others_have_left_is_no_partition() -> None:
    """It writes the last checkpoint, and their agents have ended: nobody waits for anybody."""
    job = Job(4)
    job.at(0, Phase.CHECKPOINT, "torch.save", 6.0)
    job.change(0, groups=())
    for rank in (1, 2, 3):
        job.dies(rank, ago=6.0, code=0)
    found = judged(job, {"a": (0,)}, {"b", "c", "d"})
    assert not [v for v in found if v.state is State.CONFIRMED]


def test_a_minority_whose_rank_waits_says_so() -> None:
    job = job_that_waits(0)
    (verdict,) = judged(job, {"a": (0,)}, {"b", "c", "d"})
    assert (verdict.cause, verdict.status) == (Cause.NODE_UNREACHABLE, Status.INCONCLUSIVE)
    assert not verdict.implicated


def test_losing_sight_of_the_others_adds_nothing_to_a_stall_that_is_explained() -> None:
    job = job_that_waits(*(r for r in range(8) if r != 1))
    job.hangs(1)
    core = Core(job.settings)
    reports = [(node(n, job, *ranks), 0) for n, ranks in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5, 6, 7)))]
    found: list[Verdict] = []
    for k in range(24):
        now = ns(100 + 0.25 * k)
        core.step(Observed(reports[0][0]), now)
        alone = k > 10
        away = frozenset({"b", "c"}) if alone else frozenset()
        core.step(Evidence(tuple(reports), away, not alone), now)
        found += [v for v in verdicts(core.step(Tick(), now)) if v.state is not State.OPEN]
    assert [(v.cause, v.state, implicated(v)) for v in found] == [
        (Cause.RANK_STALLED, State.CONFIRMED, [1]),
    ]


def test_ranks_that_moved_when_they_were_last_heard_of_are_not_named() -> None:
    """The network broke in two while everybody trained, and nobody has noticed it yet."""
    job = job_that_waits(4, 5, 6, 7)
    core = Core(job.settings)
    mine = node("b", job, 4, 5, 6, 7)
    moving = node("a", job, 0, 1, 2, 3)
    found: list[Verdict] = []
    for k in range(40):
        now = ns(100 + 0.25 * k)
        core.step(Observed(mine), now)
        core.step(Evidence(((mine, 0), (moving, ns(5.9))), frozenset(), True, quiet_ns={"a": ns(5.8)}), now)
        found += verdicts(core.step(Tick(), now))
    assert not [v for v in found if v.state is State.CONFIRMED and v.implicated]


def test_a_side_that_notices_one_node_after_the_other_says_all_of_them_in_the_end() -> None:
    """Whatever the order: else the agents of one side go on saying different things."""
    said = set()
    for order in (("c", "d"), ("d", "c")):
        job = job_that_waits(*range(8))
        core = Core(job.settings)
        reports = [
            (node(n, job, *r), 0) for n, r in zip("abcd", ((0, 1), (2, 3), (4, 5), (6, 7)), strict=True)
        ]
        for k in range(24):
            now = ns(100 + 0.25 * k)
            core.step(Observed(reports[0][0]), now)
            away = frozenset(order[: 1 if k < 12 else 2])
            core.step(Evidence(tuple(reports), away, False), now)
            core.step(Tick(), now)
        confirmed = [v for v in core.verdicts if v.state is State.CONFIRMED]
        assert len(core.verdicts) == 1
        said |= {(v.id, v.summary) for v in confirmed}
    assert len(said) == 1
