"""Parties of several agents over real sockets, driven by hand: who joins whom, and what is kept apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from scoutd.agent.events import Observed, Tick
from scoutd.agent.evidence import NodeReport
from scoutd.agent.messages import Layout, Order, OrderReply, Outgoing
from scoutd.agent.settings import ExchangeSettings, Settings
from scoutd.agent.verdict import Cause
from scoutd.daemon.clock import monotonic_ns
from scoutd.daemon.observe.job import Discovery
from scoutd.daemon.peer import neighbours, parties
from scoutd.daemon.peer.neighbours import Neighbours
from scoutd.daemon.peer.parties import JobParty
from scoutd.daemon.peer.plan import PeerPlan
from scoutd.daemon.peer.traffic import Traffic
from tests.unit.agent.job import Job
from tests.unit.daemon_serve.fakes import Observation

KEY = bytes(range(32))
EXCHANGE = ExchangeSettings(probe_interval_s=0.05, sync_interval_s=0.02, most_timeout_s=1.0)
SETTINGS = Settings(stall_timeout_s=5.0)


class Node:
    """An agent's neighbours with a listener on loopback; ``report`` is what its observer shows."""

    def __init__(self, name: str, plan: PeerPlan | None = None, incarnation: int = 1) -> None:
        self.name = name
        self.traffic = Traffic()
        self.woken = 0
        self.errors: list[Exception] = []
        self.neighbours = Neighbours(
            plan or PeerPlan(advertise="127.0.0.1"),
            name,
            incarnation,
            self.traffic,
            monotonic_ns,
            self.wake,
            self.errors.append,
            lambda address: None,
        )
        self.party: JobParty = self.neighbours.admit("job", SETTINGS, EXCHANGE)
        self.report = NodeReport("job", 1, name, incarnation, 1, 8)
        self.discovery = Discovery()

    def wake(self) -> None:
        self.woken += 1

    async def listen(self) -> str:
        self.neighbours.open("", 0)
        self.neighbours.listener.want()
        await until(lambda: bool(self.neighbours.address))
        return self.neighbours.address

    def round(self) -> None:
        now = monotonic_ns()
        self.neighbours.meet(
            Observation("job", self.report.generation, "", self.report, discovery=self.discovery)
        )
        self.party.step(Observed(self.report), now)
        self.party.step(Tick(), now)

    def known(self) -> set[str]:
        return {member.node for member in self.neighbours.members("job")}


async def until(condition: Callable[[], bool], nodes: tuple[Node, ...] = ()) -> None:
    async def turning() -> None:
        while not condition():
            for node in nodes:
                node.round()
            await asyncio.sleep(0.02)

    await asyncio.wait_for(turning(), 20)


def cluster(count: int, work: Callable[[tuple[Node, ...]], Awaitable[None]], *plans: PeerPlan) -> None:
    async def body() -> None:
        nodes = tuple(Node(f"n{i}", plans[i] if plans else None) for i in range(count))
        try:
            seeds = tuple([await node.listen() for node in nodes])
            for node in nodes:
                node.discovery = Discovery(True, (KEY,), seeds)
            await work(nodes)
        finally:
            for node in nodes:
                await node.neighbours.close()
        assert [node.errors for node in nodes] == [[]] * count

    asyncio.run(body())


def test_agents_that_share_a_seed_find_each_other() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        await until(lambda: all(node.known() == {"n0", "n1", "n2"} for node in nodes), nodes)
        assert all(sum(m.me for m in node.neighbours.members("job")) == 1 for node in nodes)
        assert nodes[0].neighbours.states() == {"ALIVE": 2, "UNREACHABLE": 0, "LEFT": 0}
        assert not nodes[0].neighbours.warnings()

    cluster(3, work)


def test_a_suspicion_of_one_agent_brings_the_evidence_of_all_together() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        job = Job(4, SETTINGS)
        job.hangs(2)
        for rank in (0, 1, 3):
            job.waits(rank, 7)
        for node, ranks in zip(nodes, ((0, 1), (2, 3)), strict=True):
            node.report = NodeReport("job", 1, node.name, 1, 1, 4, tuple(job.ranks[r] for r in ranks))
        await until(lambda: all(node.party.verdicts for node in nodes), nodes)
        first, second = (node.party.verdicts[-1] for node in nodes)
        assert first.id == second.id
        assert first.cause is Cause.RANK_STALLED
        assert [i.rank for i in first.implicated] == [i.rank for i in second.implicated] == [2]

    cluster(2, work)


def test_a_job_on_one_node_speaks_to_nobody() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            node.discovery = replace(node.discovery, shared=False)
        for _ in range(10):
            for node in nodes:
                node.round()
            await asyncio.sleep(0.02)
        assert not any(node.traffic.requests or node.known() for node in nodes)

    cluster(2, work)


def test_without_a_key_nobody_is_heard_and_the_status_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parties, "KEY_PATIENCE_NS", 0)

    async def work(nodes: tuple[Node, ...]) -> None:
        nodes[1].discovery = replace(nodes[1].discovery, keys=())
        await until(lambda: nodes[1].traffic.refused["job"] > 0, nodes)
        nodes[1].round()
        assert "its key was not published" in " ".join(nodes[1].neighbours.warnings())
        assert not nodes[1].known()

    cluster(2, work)


def test_a_key_that_is_still_on_its_way_is_no_warning() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        nodes[1].discovery = replace(nodes[1].discovery, keys=())
        nodes[1].round()
        assert not nodes[1].neighbours.warnings()

    cluster(2, work)


def test_a_new_generation_begins_without_the_members_of_the_old() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        await until(lambda: all(len(node.known()) == 2 for node in nodes), nodes)
        nodes[0].report = replace(nodes[0].report, generation=2)
        nodes[0].round()
        assert nodes[0].known() == {"n0"}
        await until(lambda: nodes[0].traffic.refused["stale_generation"] > 0, nodes)
        nodes[1].report = replace(nodes[1].report, generation=2)
        await until(lambda: all(len(node.known()) == 2 for node in nodes), nodes)

    cluster(2, work)


def test_a_peer_list_that_names_itself_is_harmless() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        port = nodes[0].neighbours.address.rpartition(":")[2]
        nodes[0].discovery = Discovery(True, (KEY,), (f"localhost:{port}",))
        await until(lambda: nodes[0].traffic.refused["self"] > 0, nodes)
        for _ in range(10):
            nodes[0].round()
            await asyncio.sleep(0.02)
        assert nodes[0].traffic.refused["self"] == 1
        assert not nodes[0].neighbours.warnings()

    cluster(1, work)


def test_a_secret_of_the_configuration_is_a_key_for_every_job(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret of enough bytes\n")
    plan = PeerPlan(advertise="127.0.0.1", key_file=str(secret))

    async def work(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            node.discovery = replace(node.discovery, keys=())
        await until(lambda: all(len(node.known()) == 2 for node in nodes), nodes)

    cluster(2, work, plan, plan)


def test_an_agent_that_nobody_reaches_is_told_so() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        nodes[1].neighbours.listener.address = "127.0.0.1:1"
        nodes[0].discovery = replace(nodes[0].discovery, seeds=())
        await until(
            lambda: any("no agent has reached this one" in w for w in nodes[1].neighbours.warnings()), nodes
        )

    cluster(2, work)


def states(node: Node) -> dict[str, str]:
    return {member.node: member.state for member in node.neighbours.members("job")}


def test_a_node_whose_job_has_ended_has_left_and_is_not_lost() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        await until(lambda: all(len(node.known()) == 3 for node in nodes), nodes)
        nodes[0].neighbours.leave("job")
        assert nodes[0].neighbours.members("job") == []
        for other in nodes[1:]:
            await until(lambda other=other: states(other)[nodes[0].name] == "LEFT", nodes[1:])
        for _ in range(10):
            await asyncio.sleep(0.05)
            for other in nodes[1:]:
                other.party.exchange.alarm(monotonic_ns())
                other.round()
                assert "UNREACHABLE" not in states(other).values()

    cluster(3, work)


def test_who_has_left_still_answers_for_a_while_and_then_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        await until(lambda: all(len(node.known()) == 2 for node in nodes), nodes)
        left = nodes[0].neighbours
        left.leave("job")
        assert left.service._hosts("job") is not None
        monkeypatch.setattr(neighbours, "DEPARTED_NS", 0)
        monkeypatch.setattr(neighbours, "TIDY_NS", 0)
        left.admit("other", SETTINGS, EXCHANGE)
        left.meet(Observation("other", 1, "", NodeReport("other", 1, nodes[0].name, 1, 1, 8)))
        assert left.service._hosts("job") is None

    cluster(2, work)


def test_an_order_reaches_every_agent_and_says_whom_it_did_not_reach() -> None:
    order = Order(7, 0xB10C, 2, 60_000_000_000)

    async def work(nodes: tuple[Node, ...]) -> None:
        heard: list[tuple[str, str, Order]] = []

        def carry_out(name: str) -> Callable[[str, Order], OrderReply]:
            def how(job: str, order: Order) -> OrderReply:
                heard.append((name, job, order))
                return OrderReply((int(name[1:]),), ())

            return how

        for node in nodes:
            node.neighbours.carry_out(carry_out(node.name))
        await until(lambda: all(len(node.known()) == 4 for node in nodes), nodes)
        await nodes[3].neighbours.close()
        told = await nodes[0].neighbours.order("job", order)
        assert told == {"n1": OrderReply((1,), ()), "n2": OrderReply((2,), ()), "n3": None}
        assert sorted(heard) == [("n1", "job", order), ("n2", "job", order)]
        assert await nodes[0].neighbours.order("another", order) == {}

    cluster(4, work)


def test_who_is_out_of_reach_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        await until(lambda: len(nodes[0].known()) == 3, nodes)
        asked: list[str] = []

        async def ask(_: JobParty, sent: Outgoing) -> None:
            if isinstance(sent.request, Layout):
                asked.append(sent.node)

        monkeypatch.setattr(JobParty, "_ask", ask)
        monkeypatch.setattr(parties, "ORDERS_AT_ONCE", 1)
        nodes[0].party.exchange.unreachable["n1"] = 1
        await nodes[0].neighbours.layouts("job")
        assert asked == ["n2", "n1"]

    cluster(3, work)


def test_agents_tell_each_other_what_they_see_of_the_layout() -> None:
    async def work(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            node.neighbours.show_layout(lambda job, name=node.name: f"{job} at {name}".encode())
        await until(lambda: all(len(node.known()) == 3 for node in nodes), nodes)
        await nodes[2].neighbours.close()
        assert await nodes[0].neighbours.layouts("job") == {"n1": b"job at n1", "n2": None}
        assert await nodes[0].neighbours.layouts("another") == {}

    cluster(3, work)
