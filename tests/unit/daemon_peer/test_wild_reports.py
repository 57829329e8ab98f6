"""A member of the job reports nonsense: this node goes on telling what it sees."""

from __future__ import annotations

import random
from dataclasses import replace

from scoutd.agent.evidence import NodeReport
from scoutd.agent.exchange import Exchange
from scoutd.agent.messages import Blob, Mark, Push
from scoutd.agent.party import Party
from scoutd.agent.replica import Replica
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.daemon.peer.client import MAX_CHANNELS
from scoutd.daemon.peer.parties import ORDERS_AT_ONCE
from scoutd.daemon.peer.reportcodec import decode_report, encode_report
from tests.unit.agent.job import Job, ns

LARGEST = (1 << 64) - 1


def test_a_death_that_is_older_than_time_keeps_nobody_from_reporting() -> None:
    job = Job(4)
    for rank in (0, 2):
        job.dies(rank, ago=0.5, signal=9)
        job.change(rank, silent_ns=ns(0.6))
    wild = job.ranks[2]
    wild = replace(wild, process=replace(wild.process, gone_age_ns=LARGEST))
    theirs = encode_report(NodeReport("job", 1, "b", 1, 1, 4, (wild, job.ranks[3])))
    mine = NodeReport("job", 1, "a", 1, 1, 4, (job.ranks[0], job.ranks[1]))
    replica = Replica("a", "a:1", 1)
    party = Party(
        Settings(), Exchange(replica, ExchangeSettings(), random.Random(1)), encode_report, decode_report
    )
    now = ns(1000)
    replica.merge_marks([Mark("b", "b:1", 1, 1, 1)], now)
    party.exchange.alarm(now)
    for k in range(40):
        now += ns(0.1)
        party.observe(mine, now)
        if k == 3:
            party.handle(Push((Blob(Mark("b", "b:1", 1, 2, 2, 2), theirs, 0),)), now)
        party.tick(now)
    party.depart(now)
    assert replica.mine.left
    assert decode_report(replica.reports()["a"][0]).ranks[0].process.gone_age_ns is not None


def test_orders_to_many_agents_leave_channels_for_the_exchange() -> None:
    assert ORDERS_AT_ONCE + ExchangeSettings().in_flight <= MAX_CHANNELS
