"""Alarms and retractions between two exchanges, without any network."""

from __future__ import annotations

import random

from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Mark, Outgoing, Probe, Push, Sync, SyncReply
from scoutd.agent.pace import MOST_TIMEOUT_NS
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


def test_columns_that_are_strange_to_a_peer_are_followed_by_marks() -> None:
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    a.replica.publish(b"report", 0)
    a.replica.merge_marks([Mark("c", "c:1", 1, 1, 1)], 0)
    sent = Outgoing("b", "b:1", Sync((), 0, (), a.replica.columns()), NS_PER_S)
    strange = b.handle(sent.request, 0)
    assert strange == SyncReply((), (), (), strange=True)
    (again,) = a.on_reply(sent, strange, 0)
    assert again.request == Sync(a.replica.marks())
    (push,) = a.on_reply(again, b.handle(again.request, 0), 0)
    b.handle(push.request, 0)
    assert b.replica.roster == a.replica.roster
    assert b.replica.reports()["a"][0] == b"report"
    settled = b.handle(Sync((), 0, (), a.replica.columns()), 0)
    assert isinstance(settled, SyncReply)
    assert (settled.strange, settled.blobs, settled.wanted) == (False, (), ())


def test_while_nothing_is_wrong_many_lost_probes_make_few_questions() -> None:
    one = exchange("a")
    for k in range(40):
        introduce(one, exchange(f"n{k}"))
    lost = [Outgoing(f"n{k}", f"n{k}:1", Probe((), 0), NS_PER_S) for k in range(12)]
    asked = [len(one.on_failure(out, 0)) for out in lost]
    assert asked == [one.settings.relays] + [0] * 11
    one.alarm(0)
    assert len(one.on_failure(lost[1], 0)) == one.settings.relays


def test_who_pushes_a_report_is_in_reach_and_its_farewell_is_told_on() -> None:
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    b.unreachable["a"] = 1
    a.replica.publish(b"report", 1)
    b.handle(Push(a.replica.blobs(["a"], 1)), 1)
    assert "a" not in b.unreachable
    (farewell,) = a.depart(2)
    assert isinstance(farewell.request, Push)
    b.handle(farewell.request, 2)
    assert b._piggyback.news


class Outage:
    """Nothing that ``one`` sends is answered; every request ends when its time is over."""

    def __init__(self, one: Exchange) -> None:
        self.one = one
        self.waiting: list[tuple[int, Outgoing]] = []

    def sent(self, now: int, outgoing: list[Outgoing]) -> None:
        self.waiting += [(now + out.timeout_ns, out) for out in outgoing]

    def last(self, start: float, seconds: float) -> None:
        for k in range(int(seconds * 20)):
            now = int((start + k / 20) * NS_PER_S)
            self.one.alarm(now)
            self.sent(now, self.one.tick(now))
            for entry in [e for e in self.waiting if e[0] <= now]:
                self.waiting.remove(entry)
                self.sent(now, self.one.on_failure(entry[1], now))


def test_requests_that_wait_long_do_not_hide_that_nobody_is_there() -> None:
    """An earlier outage has taught the synchronisations patience."""
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    for _ in range(4):
        a.pace.lost()
    a.alarm(0)
    outage = Outage(a)
    for out in a.tick(0):
        if isinstance(out.request, Probe):
            a.on_reply(out, b.handle(out.request, 0), 0)
        else:
            outage.sent(0, [out])
    outage.last(0.2, 4.0)
    assert "b" in a.unreachable


def test_answers_that_an_outage_delayed_teach_no_patience() -> None:
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    a.alarm(0)
    outage = Outage(a)
    first = a.tick(0)
    (sync,) = [out for out in first if isinstance(out.request, Sync)]
    outage.sent(0, [out for out in first if out is not sync])
    outage.last(0.1, 6.0)
    assert "b" in a.unreachable
    now = 7 * NS_PER_S
    a.on_reply(sync, b.handle(sync.request, now), now)
    assert "b" not in a.unreachable
    assert not a.pace.strained
    outage.last(8.0, 4.0)
    assert "b" in a.unreachable


def test_who_gets_quick_answers_does_not_wait_for_a_lost_one() -> None:
    """The next synchronisation begins long before the lost one is given up."""
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    a.alarm(0)
    for out in a.tick(0):
        a.on_reply(out, b.handle(out.request, 0), 5_000_000)
    lost: list[tuple[int, Outgoing]] = []
    for k in range(1, 20):
        now = k * NS_PER_S // 20
        lost += [(now, out) for out in a.tick(now) if isinstance(out.request, Sync)]
    (first, sent), (second, _) = lost[:2]
    assert second - first < sent.timeout_ns // 2


def test_an_agent_that_is_always_late_still_learns_that_its_requests_are_lost() -> None:
    """Its rounds are seconds apart; that is no pause in which answers do not count."""
    a, b = exchange("a"), exchange("b")
    introduce(a, b)
    for now in range(2 * NS_PER_S, 200 * NS_PER_S, 2 * NS_PER_S):
        a.alarm(now)
        a.pace.late(NS_PER_S)
        for sent in a.tick(now):
            a.on_failure(sent, now + NS_PER_S)
    assert a.pace.timeout_ns(2) >= MOST_TIMEOUT_NS
