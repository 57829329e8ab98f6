"""Four hosts, eight ranks: one verdict on all agents, whichever agent, link or host is lost meanwhile.

The hosts are network namespaces (``hosts``); the agents find each other through the trainer's store alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.hosts import Company, company
from tests.e2e.harness import cleared, named, until

CULPRIT = 5
AWAY = 2
"""The culprit's host."""


@pytest.fixture(scope="module")
def machines() -> Iterator[Company]:
    """Four hosts that keep their agents from test to test."""
    with company() as made:
        yield made


@pytest.fixture
def hosts(machines: Company) -> Iterator[Company]:
    """Every test launches a job of its own on them."""
    machines.start_agents()
    yield machines
    machines.network.heal()
    machines.end_job()


def launch(hosts: Company, fault: str) -> None:
    hosts.launch("--fault", fault, "--rank", str(CULPRIT))


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("gil", "RANK_STALLED"),
        ("stop", "PROCESS_STOPPED"),
        ("kill", "PROCESS_DEAD"),
        ("raise", "PROCESS_DEAD"),
    ],
)
def test_every_host_says_the_same(hosts: Company, fault: str, cause: str) -> None:
    launch(hosts, fault)
    hosts.strike()
    verdict = hosts.agreed()
    assert (verdict["cause"], named(verdict)) == (cause, [CULPRIT]), verdict
    assert sorted(cleared(verdict)) == [rank for rank in range(8) if rank != CULPRIT]
    assert verdict["implicated"][0]["node"] == "host-2"
    hosts.end_job()
    assert len({tuple(v["id"] for v in each) for each in hosts.confirmed(range(4))}) == 1, hosts.told()
    assert hosts.named_by_anybody() == {CULPRIT}, hosts.told()


def test_an_agent_dies_in_mid_round_and_comes_back(hosts: Company) -> None:
    """Its own ranks are healthy. The others agree without it; restarted, it agrees with them."""
    launch(hosts, "sleep-forward")
    hosts.strike()
    lost = hosts.hosts[1]
    until(lambda: "ALIVE" in lost.members().values() and silent_s(hosts) > 1.5, "silence", 30.0)
    lost.kill_agent()
    verdict = hosts.agreed([0, 2, 3])
    assert (verdict["cause"], named(verdict)) == ("RANK_STALLED", [CULPRIT]), verdict
    lost.start_agent()
    assert hosts.agreed([1])["id"] == verdict["id"]
    assert hosts.agreed([0, 2, 3])["id"] == verdict["id"]
    assert hosts.named_by_anybody() == {CULPRIT}, hosts.told()


def silent_s(hosts: Company) -> float:
    """How long rank 0 has not finished a step."""
    return time.time() - (hosts.progress / "rank-0").stat().st_mtime


def test_one_host_is_cut_off_then_half_of_them(hosts: Company) -> None:
    """Cut off alone it is named by the others and names nobody. Two against two, nobody names anybody.
    Each time the network heals all agree again."""
    launch(hosts, "sleep-forward")
    hosts.network.split([3])
    verdict = hosts.agreed([0, 1, 2])
    assert verdict["cause"] == "NODE_UNREACHABLE"
    assert verdict["status"] == "ATTRIBUTED"
    assert {i["node"] for i in verdict["implicated"]} == {"host-3"}
    assert named(verdict) == [6, 7]
    alone = hosts.agreed([3])
    assert (alone["cause"], alone["status"], alone["implicated"]) == ("NODE_UNREACHABLE", "INCONCLUSIVE", [])
    hosts.network.heal()
    hosts.until_it_trains()
    until(lambda: not any(hosts.confirmed(range(4))), "no verdict that stands", 30.0)

    hosts.network.split([2, 3])
    for side in ([0, 1], [2, 3]):
        verdict = hosts.agreed(side)
        assert (verdict["status"], verdict["implicated"]) == ("INCONCLUSIVE", []), hosts.told()
    hosts.strike()
    hosts.network.heal()
    verdict = hosts.agreed(cause="RANK_STALLED")
    assert named(verdict) == [CULPRIT]
    assert hosts.named_by_anybody() == {CULPRIT, 6, 7}, hosts.told()


def test_a_whole_host_is_gone() -> None:
    with company() as hosts:
        hosts.start_agents()
        launch(hosts, "sleep-forward")
        hosts.hosts[3].kill()
        hosts.network.unplug(3)
        verdict = hosts.agreed([0, 1, 2])
        assert (verdict["cause"], verdict["symptom"]) == ("NODE_UNREACHABLE", "NODE_LOSS")
        assert verdict["action"] == "REPLACE_NODE"
        assert named(verdict) == [6, 7]
        assert {i["node"] for i in verdict["implicated"]} == {"host-3"}
        waits = cleared(verdict)
        assert sorted(waits) == list(range(6))
        assert any(waits.values()), verdict
        assert hosts.named_by_anybody() == {6, 7}, hosts.told()
