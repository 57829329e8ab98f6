"""Farewell: a node whose part in the job is over has left, which is not the same as being lost."""

from __future__ import annotations

from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Probe, Push
from scoutd.agent.settings import NS_PER_S
from tests.unit.agent.test_exchange import exchange


def acquaint(*all_of_them: Exchange) -> None:
    for one in all_of_them:
        for other in all_of_them:
            one.replica.merge_marks(other.replica.marks(), 0)


def test_the_farewell_carries_the_last_report_and_spreads_by_marks() -> None:
    a, b, c = exchange("a"), exchange("b"), exchange("c")
    acquaint(a, b, c)
    a.replica.publish(b"how my ranks ended", 0)
    sent = a.depart(0)
    assert {out.node for out in sent} == {"b", "c"}
    assert all(isinstance(out.request, Push) for out in sent)
    b.handle(sent[0].request, 0)
    assert b.peers == ["c"]
    assert b.replica.reports()["a"][0] == b"how my ranks ended"
    c.handle(Probe(b.replica.marks(), 0), 0)
    assert c.peers == ["b"]


def test_who_has_left_is_not_asked_not_missed_and_not_counted() -> None:
    a, b, c = exchange("a"), exchange("b"), exchange("c")
    acquaint(a, b, c)
    for out in a.depart(0):
        {"b": b, "c": c}[out.node].handle(out.request, 0)
    b.alarm(0)
    for k in range(100):
        now = k * NS_PER_S // 10
        for out in b.tick(now):
            assert out.node != "a"
            b.on_reply(out, c.handle(out.request, now), now)
    assert not b.unreachable
    assert "a" not in b.stale(10 * NS_PER_S)
    assert b.majority(frozenset())
    assert not b.majority(frozenset({"c"})), "one of the two that are left"


def test_a_new_life_comes_after_the_farewell() -> None:
    a, b = exchange("a"), exchange("b")
    acquaint(a, b)
    b.handle(a.depart(0)[0].request, 0)
    again = a.replica.mine._replace(incarnation=a.replica.mine.incarnation + 1, beat=1)
    b.handle(Probe((again,), 0), 0)
    assert b.peers == ["a"]
