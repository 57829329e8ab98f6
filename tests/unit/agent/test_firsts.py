"""Deaths on several nodes are in one order for all agents, whatever the ways that reports took to them."""

from __future__ import annotations

import random
from dataclasses import replace

from scoutd.agent import crash
from scoutd.agent.deaths import deaths, unordered
from scoutd.agent.evidence import CallState, NodeReport, SeenDeath
from scoutd.agent.firsts import MOST_SEEN, NEAR_NS, Fall, Sightings, awaited, shifts
from scoutd.agent.snapshot import Snapshot, snapshot
from tests.unit.agent.job import Job, ns

LOST = ("RuntimeError", "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")


def killed(ago: dict[int, float]) -> Job:
    """Six ranks on three nodes. Those in ``ago`` were killed so long ago, the others lost connections."""
    job = Job(6)
    for rank in job.ranks:
        if rank in ago:
            job.dies(rank, ago=ago[rank], signal=9)
            job.change(rank, silent_ns=ns(ago[rank] + 0.1))
        else:
            job.waits(rank, state=CallState.FAILED, seconds=1.4)
            job.dies(rank, ago=1.0, code=1, note=LOST)
    return job


def nodes(job: Job) -> dict[str, NodeReport]:
    """Reports of nodes a, b and c, two ranks each, with what agents there saw of each other's deaths: as if
    each report had needed 30 ms."""
    found = {
        name: NodeReport("job", 1, name, 1, 1, 6, (job.ranks[2 * k], job.ranks[2 * k + 1]))
        for k, name in enumerate("abc")
    }
    for me in found:
        sightings = Sightings()
        sightings.look(me, falls(moment(found, {n: ns(0.03) * (n != me) for n in found}, way=True)), ns(100))
        found[me] = replace(found[me], seen=sightings.told(ns(100)))
    return found


def moment(reports: dict[str, NodeReport], late: dict[str, int], way: bool = False) -> Snapshot:
    """What an agent knows to which these reports came so late without its knowing; all are 5 s old."""
    since = 0 if way else ns(5)
    younger = {name: (report, since - late[name]) for name, report in reports.items()}
    return snapshot(younger.values(), ns(5))


def falls(seen: Snapshot) -> list[Fall]:
    return [
        Fall(d.rank, seen.nodes[d.rank], d.age_ns, seen.age_ns(d.rank))
        for d in deaths(seen)
        if d.what == "was killed by SIGKILL"
    ]


def named(seen: Snapshot, job: Job) -> tuple[tuple[int, ...], str]:
    (finding,) = crash.find(seen, job.settings)
    return finding.ranks, finding.summary


def test_all_agents_name_the_same_first_deaths_whatever_way_the_reports_took() -> None:
    chance = random.Random(7)
    for ago in ({1: 1.50, 3: 1.49}, {1: 1.50, 3: 1.45}, {1: 1.45, 3: 1.50}, {1: 1.5, 3: 1.495, 5: 1.40}):
        job = killed(ago)
        reports = nodes(job)
        looks = [moment(reports, {n: ns(chance.uniform(0, 0.1)) for n in reports}) for _ in range(20)]
        eldest = max(ago.values())
        expected = tuple(r for r, age in ago.items() if eldest - age <= 0.02)
        assert {named(look, job)[0] for look in looks} == {expected}
        assert len({named(look, job)[1] for look in looks}) == 1
        assert not any(map(unordered, looks))


def test_without_what_nodes_tell_the_way_decides() -> None:
    job = killed({1: 1.50, 3: 1.45})
    silent = {name: replace(report, seen=()) for name, report in nodes(job).items()}
    assert named(moment(silent, {"a": ns(0.1), "b": 0, "c": 0}), job)[0] == (3,)
    assert unordered(moment(silent, {"a": ns(0.1), "b": 0, "c": 0}))


def test_a_death_on_one_node_alone_needs_no_word_of_others() -> None:
    job = killed({2: 1.5, 3: 1.5})
    reports = nodes(job)
    assert [report.seen for report in reports.values()] == [(), (), ()]
    assert not unordered(moment(reports, dict.fromkeys(reports, 0)))


def fall(rank: int, node: str, age_s: float) -> Fall:
    return Fall(rank, node, ns(age_s), ns(0.5))


def test_what_one_node_says_alone_counts_until_the_other_has_told() -> None:
    known = [fall(0, "a", 2.0), fall(1, "b", 2.0)]
    assert shifts(known, {"a": (SeenDeath(1, ns(1.46)),)}) == {"b": ns(-0.04)}
    both = {"a": (SeenDeath(1, ns(1.46)),), "b": (SeenDeath(0, ns(1.44)),)}
    assert shifts(known, both) == {"b": ns(0.01)}


def test_an_age_without_sense_moves_a_death_by_a_second_at_most() -> None:
    known = [fall(0, "a", 2.0), fall(1, "b", 2.0)]
    assert shifts(known, {"a": (SeenDeath(1, 1 << 63),)}) == {"b": NEAR_NS}
    assert shifts(known, {"a": (SeenDeath(7, 0), SeenDeath(0, 0)), "c": (SeenDeath(1, 0),)}) == {}


def test_nobody_waits_for_the_word_of_a_node_that_is_gone_or_died_later() -> None:
    near = [fall(0, "a", 2.0), fall(1, "b", 1.9)]
    told = {"a": (SeenDeath(1, ns(1.4)),)}
    assert awaited(near, told, ())
    assert not awaited(near, told, ("b",))
    assert not awaited([fall(0, "a", 2.0), fall(1, "b", 0.9)], {}, ())
    assert not awaited([fall(0, "a", 0.9), fall(1, "b", 2.0)], {}, ())


def test_what_was_told_once_stands() -> None:
    sightings = Sightings()
    sightings.look("b", [fall(0, "a", 2.0), fall(1, "b", 1.9)], ns(10))
    sightings.look("b", [fall(0, "a", 2.2), fall(1, "b", 2.0)], ns(10.1))
    assert sightings.told(ns(11)) == (SeenDeath(0, ns(3)),)


def test_a_node_tells_of_the_reference_and_the_reference_of_all_but_not_without_end() -> None:
    many = [fall(rank, f"n{rank:03}", 2.0) for rank in range(200)]
    for me, count in (("n000", MOST_SEEN), ("n150", 1)):
        sightings = Sightings()
        sightings.look(me, many, ns(10))
        assert len(sightings.told(ns(10))) == count
