"""Alarms and retractions between two exchanges, without any network."""

from __future__ import annotations

import random

from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Probe, Sync
from scoutd.agent.replica import Replica
from scoutd.agent.settings import NS_PER_S, ExchangeSettings


def exchange(name: str, hold_s: float = 5.0) -> Exchange:
    settings = ExchangeSettings(alarm_hold_s=hold_s)
    return Exchange(Replica(name, f"{name}:1", 1), settings, random.Random(name))


def introduce(a: Exchange, b: Exchange) -> None:
    a.replica.merge_marks(b.replica.marks(), 0)
    b.replica.merge_marks(a.replica.marks(), 0)


def test_two_agents_do_not_keep_each_other_alarmed() -> None:
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    a.alarm(0)
    for k in range(60):
        now = k * NS_PER_S // 10
        for one, other in ((a, b), (b, a)):
            for out in one.tick(now):
                one.on_reply(out, other.handle(out.request, now), now)
    assert not a.alarmed(now)
    assert not b.alarmed(now)


def test_an_alarm_reaches_an_agent_through_one_that_suspects_nothing() -> None:
    a, b, c = exchange("a"), exchange("b"), exchange("c")
    a.alarm(0)
    b.handle(Probe((), a.alarm_ns(0)), 0)
    c.handle(Sync((), b.alarm_ns(NS_PER_S)), NS_PER_S)
    assert c.alarmed(NS_PER_S)
    assert c.alarm_ns(NS_PER_S) == 4 * NS_PER_S


def test_nobody_can_impose_an_endless_alarm() -> None:
    a = exchange("a")
    a.handle(Probe((), 10**18), 0)
    assert a.alarm_ns(0) == 5 * NS_PER_S


def test_a_retracted_report_is_stale_to_whoever_hears_of_it() -> None:
    a, b = exchange("a"), exchange("b")
    a.replica.publish(b"first", 0)
    b.replica.merge_marks(a.replica.marks(), 0)
    b.replica.merge_blobs(a.replica.blobs(["a"], 0), 0)
    assert b.stale(0) == frozenset()
    a.replica.retract(NS_PER_S)
    b.replica.merge_marks(a.replica.marks(), NS_PER_S)
    assert b.stale(NS_PER_S) == {"a"}
    assert b.replica.reports()["a"][0] == b"first"


def failing(one: Exchange, now: int) -> None:
    """Every request of this round is lost."""
    pending = one.tick(now)
    while pending:
        out = pending.pop()
        pending += one.on_failure(out, now)


def test_a_node_whose_beat_is_heard_is_in_reach_although_probes_are_lost() -> None:
    a, b, c = exchange("a"), exchange("b"), exchange("c")
    for one in (b, c):
        introduce(a, one)
    for k in range(40):
        now = k * NS_PER_S // 10
        a.alarm(now)
        b.replica.beat(now)
        a.handle(Sync((b.replica.mine,), 0), now)
        failing(a, now)
    assert "b" not in a.unreachable
    assert "c" in a.unreachable
