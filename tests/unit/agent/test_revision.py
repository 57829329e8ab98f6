"""Whatever an agent heard first, it ends with the verdicts and the words that all evidence gives."""

from __future__ import annotations

from dataclasses import replace

from scoutd.agent.evidence import NodeReport, Phase, ProcessStatus, ProcessView
from scoutd.agent.finding import Finding
from scoutd.agent.lifecycle import Ledger
from scoutd.agent.snapshot import Snapshot, snapshot
from scoutd.agent.verdict import Action, Cause, Implicated, Scope, State, Status, Verdict
from tests.unit.agent.job import Job, ns

NODES = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}


def moment(job: Job | None = None, stale: str = "", away: str = "") -> Snapshot:
    """Three nodes with two ranks each. Of nodes in ``stale`` nothing new was heard; ``away`` are lost."""
    job = job or still()
    reports = [
        (NodeReport("job", 1, name, 1, 1, 6, tuple(job.ranks[r] for r in ranks)), 0)
        for name, ranks in NODES.items()
    ]
    return snapshot(reports, ns(5), unreachable=frozenset(away), stale=frozenset(stale))


def still() -> Job:
    """Nobody has moved for a while."""
    job = Job(6)
    for rank in job.ranks:
        job.at(rank, Phase.FORWARD, "blocks.1", 6)
    return job


def stalled(*ranks: int, words: str = "stuck", ending: bool = False) -> Finding:
    return named(Cause.RANK_STALLED, ranks, words, ending)


def unreachable(*nodes: str, ending: bool = False) -> Finding:
    ranks = tuple(r for node in nodes for r in NODES[node])
    return replace(named(Cause.NODE_UNREACHABLE, ranks, "gone", ending), anchor=f"unreachable {nodes}")


def named(cause: Cause, ranks: tuple[int, ...], words: str, ending: bool) -> Finding:
    blamed = tuple(Implicated(r, next(n for n in NODES if r in NODES[n]), 1, "cpu", "") for r in ranks)
    return Finding(
        cause,
        Status.ATTRIBUTED,
        Scope.RANK,
        words,
        Action.OBSERVE,
        f"at {ranks}",
        ns(5),
        implicated=blamed,
        ending=ending,
    )


def see(ledger: Ledger, at_s: float, seen: Snapshot, *findings: Finding) -> list[Verdict]:
    return ledger.update(findings, seen, "job", 1, ns(at_s))


def standing(ledger: Ledger) -> set[tuple[str, str]]:
    return {(v.id, v.summary) for v in ledger.confirmed}


def test_the_words_of_a_verdict_follow_the_evidence_and_nothing_else_of_it_changes() -> None:
    ledger = Ledger(8)
    first = see(ledger, 10, moment(stale="c"), stalled(2, words="0 waits"))[-1]
    (second,) = see(ledger, 12, moment(), stalled(2, words="0 and 4 wait"))
    assert second.summary == "0 and 4 wait"
    assert replace(second, summary=first.summary) == first
    assert see(ledger, 14, moment(), stalled(2, words="0 and 4 wait")) == []


def test_less_evidence_changes_no_words() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), stalled(2, words="0 and 4 wait"))
    assert see(ledger, 12, moment(stale="c"), stalled(2, words="0 waits")) == []


def test_a_verdict_is_not_worded_anew_several_times_a_second() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), stalled(2, words="a"))
    said = [v for k in range(1, 30) for v in see(ledger, 10 + k / 10, moment(), stalled(2, words=f"{k}"))]
    assert len(said) == 2


def test_words_without_the_stack_that_was_known_are_not_taken() -> None:
    job = still()
    job.hangs(2)
    ledger = Ledger(8)
    see(ledger, 10, moment(job), stalled(2, words="at train.py:88"))
    assert see(ledger, 12, moment(), stalled(2, words="somewhere")) == []


def test_who_was_ended_after_the_verdict_keeps_its_words() -> None:
    ledger, killed = Ledger(8), still()
    killed.change(2, process=ProcessView(ProcessStatus.GONE, None, 9, gone_age_ns=ns(1)))
    see(ledger, 10, moment(), stalled(2, words="is stuck"))
    assert see(ledger, 12, moment(killed), stalled(2, words="was stuck", ending=True)) == []
    late = Ledger(8)
    see(late, 12, moment(killed), stalled(2, words="was stuck", ending=True))
    assert see(late, 14, moment(killed), stalled(2, words="was stuck, all see", ending=True)) != []


def test_what_was_said_on_less_evidence_gives_way_to_what_all_of_it_says() -> None:
    early, patient = Ledger(8), Ledger(8)
    see(early, 10, moment(stale="b"), stalled(4))
    first, *_ = see(early, 11, moment(), stalled(2))
    see(patient, 11, moment(), stalled(2))
    assert (first.state, first.implicated[0].rank) == (State.RESOLVED, 4)
    assert "all evidence together says RANK_STALLED of rank 2" in first.summary
    assert standing(early) == standing(patient)


def test_what_all_evidence_said_stands_although_something_else_is_found_later() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), stalled(4))
    see(ledger, 11, moment(), stalled(2))
    assert {v.implicated[0].rank for v in ledger.confirmed} == {2, 4}


def test_what_was_said_on_less_evidence_and_is_borne_out_stands_as_well() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(stale="b"), stalled(4))
    see(ledger, 11, moment(), stalled(4))
    see(ledger, 12, moment(), stalled(2))
    assert {v.implicated[0].rank for v in ledger.confirmed} == {2, 4}


def test_one_statement_says_which_nodes_are_out_of_reach() -> None:
    """However the nodes went one after the other, and whatever was known of their ranks before."""
    histories = (
        [("bc", unreachable("b", "c"))],
        [("b", unreachable("b")), ("bc", unreachable("b", "c"))],
        [("c", unreachable("c")), ("bc", unreachable("b", "c"))],
    )
    ends = []
    for history in histories:
        ledger = Ledger(8)
        for k, (away, finding) in enumerate(history):
            see(ledger, 10 + k, moment(away=away), finding)
        ends.append(standing(ledger))
    assert len({frozenset(end) for end in ends}) == 1
    assert len(ends[0]) == 1


def test_a_node_of_several_that_returns_leaves_the_others_named() -> None:
    ledger, other = Ledger(8), Ledger(8)
    see(ledger, 10, moment(away="bc"), unreachable("b", "c"))
    see(ledger, 12, moment(away="c"), unreachable("c"))
    see(other, 12, moment(away="c"), unreachable("c"))
    assert standing(ledger) == standing(other)


def test_a_lost_node_has_all_its_ranks_whoever_of_them_was_named_before() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), stalled(2))
    see(ledger, 12, moment(away="b"), unreachable("b"))
    assert [[i.rank for i in v.implicated] for v in ledger.confirmed] == [[2], [2, 3]]


def test_faults_that_one_look_at_the_end_finds_together_stand_in_any_order() -> None:
    both = (stalled(0, ending=True), unreachable("c", ending=True))
    ends = []
    for first in ((), both[:1], both[1:]):
        ledger = Ledger(8)
        see(ledger, 10, moment(away="c"), *first)
        see(ledger, 11, moment(away="c"), *both)
        ends.append(standing(ledger))
    assert ends[0] == ends[1] == ends[2]
    assert len(ends[0]) == 2


def missing(away: str) -> Finding:
    """What a side without a majority says."""
    ranks = tuple(r for node in away for r in NODES[node])
    alone = named(Cause.NODE_UNREACHABLE, (), f"{away} missing", False)
    return replace(alone, suspects=ranks, anchor="no majority", status=Status.INCONCLUSIVE)


def few(away: str) -> Snapshot:
    return replace(moment(away=away), majority=False)


def test_a_side_without_a_majority_says_one_thing_whichever_nodes_it_misses() -> None:
    one, other = Ledger(8), Ledger(8)
    see(one, 10, few("b"), missing("b"))
    see(one, 12, few("bc"), missing("bc"))
    see(other, 12, few("bc"), missing("bc"))
    assert standing(one) == standing(other) != set()


def test_whom_a_side_named_before_all_were_heard_it_cannot_name_without_a_majority() -> None:
    early, proven, other = Ledger(8), Ledger(8), Ledger(8)
    see(early, 10, moment(stale="bc"), stalled(0))
    see(proven, 10, moment(), stalled(0))
    for ledger in (early, proven, other):
        see(ledger, 12, few("bc"), missing("bc"))
    assert standing(early) == standing(other)
    assert [v.cause for v in proven.confirmed] == [Cause.RANK_STALLED]


def test_whoever_of_those_that_failed_together_was_known_first_all_end_with_one_verdict() -> None:
    """And it does not matter whether the evidence was known to be incomplete."""
    ends = []
    for stale in ("", "b"):
        for first in ((stalled(0),), (stalled(2),), (stalled(0), stalled(2)), ()):
            ledger = Ledger(8)
            see(ledger, 10, moment(stale=stale), *first)
            see(ledger, 11, moment(), stalled(0, 2, 4))
            ends.append(standing(ledger))
    assert all(end == ends[0] for end in ends)
    assert len(ends[0]) == 1


def test_a_part_of_a_verdict_that_is_given_up_says_what_it_is_part_of() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), stalled(0))
    closed, opened, confirmed = see(ledger, 11, moment(), stalled(0, 2))
    assert (closed.state, opened.state, confirmed.state) == (State.RESOLVED, State.OPEN, State.CONFIRMED)
    assert "one event with ranks 0 and 2" in closed.summary


def test_a_verdict_never_gives_way_to_fewer_of_its_ranks() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), stalled(0, 2))
    before = standing(ledger)
    assert see(ledger, 11, moment(), stalled(0), stalled(2)) == []
    assert standing(ledger) == before


def test_an_event_of_another_cause_is_no_part() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(), named(Cause.DEVICE_STALL, (0,), "stuck", False))
    see(ledger, 11, moment(), stalled(0, 2))
    assert {v.cause for v in ledger.confirmed} == {Cause.DEVICE_STALL, Cause.RANK_STALLED}


def dead(*ranks: int) -> Finding:
    return named(Cause.PROCESS_DEAD, ranks, "died", True)


def test_deaths_that_were_judged_before_all_were_heard_are_judged_again() -> None:
    early, patient = Ledger(8), Ledger(8)
    see(early, 10, moment(stale="b"), dead(0))
    see(early, 11, moment(), dead(0, 2))
    see(patient, 11, moment(), dead(0, 2))
    assert standing(early) == standing(patient)


def test_how_ranks_ended_says_nothing_against_what_was_said_of_a_stall() -> None:
    ledger = Ledger(8)
    see(ledger, 10, moment(stale="b"), stalled(0))
    assert see(ledger, 11, moment(), dead(2)) == []


def test_what_gave_way_gives_way_again_where_the_moment_is_judged_again() -> None:
    for first, all_of_them in ((dead(0), dead(0, 2)), (stalled(4), stalled(2))):
        ledger, other = Ledger(8), Ledger(8)
        see(ledger, 10, moment(stale="b"), first)
        other.resume(ledger.known(ns(11)), ns(11))
        said = [(v.id, v.state) for v in see(ledger, 11, moment(), all_of_them)]
        assert [(v.id, v.state) for v in see(other, 11, moment(), all_of_them)] == said
        assert len(said) == 3
