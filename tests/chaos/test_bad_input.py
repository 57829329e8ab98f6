"""Wrong keys, names, addresses: what the status says, and that nobody healthy is blamed."""

from __future__ import annotations

from tests.chaos.hosts import Company, Host, company
from tests.e2e.harness import cleared, named, until


def hung(hosts: Company) -> None:
    hosts.launch("--fault", "sleep-forward", "--rank", "0")
    hosts.strike()


def test_ipv6_and_a_peer_list_that_names_itself() -> None:
    with company(3, ranks_per_host=1, ipv6=True) as hosts:
        itself = "[fd77::1]:7641"
        hosts.start_agents("--peers", f"{itself},[fd77::2]:7641")
        hosts.launch("--fault", "sleep-forward", "--rank", "0")
        job = hosts.hosts[1].tell("status")["jobs"][0]
        assert {m["address"] for m in job["members"]} == {f"[fd77::{n}]:7641" for n in (1, 2, 3)}
        hosts.strike()
        verdict = hosts.agreed()
        assert (verdict["cause"], named(verdict)) == ("RANK_STALLED", [0])
        assert cleared(verdict) == {1: [0], 2: [0]}
        assert not any(host.warnings() for host in hosts.hosts)


def test_an_advertised_address_that_nobody_reaches() -> None:
    """Its own requests still get out, so its evidence arrives; the status says what is wrong."""
    with company(3, ranks_per_host=1) as hosts:
        for host in hosts.hosts:
            host.start_agent(*(("--advertise", "10.99.0.1:7641") if host.index == 2 else ()))
        hosts.until_all(Host.answers, "agents")
        hung(hosts)
        verdict = hosts.agreed()
        assert (verdict["cause"], named(verdict)) == ("RANK_STALLED", [0])
        until(lambda: "10.99.0.1:7641" in hosts.hosts[2].warnings(), "a warning", 40.0)
        assert "peers.advertise" in hosts.hosts[2].warnings()


def test_two_agents_with_one_name() -> None:
    with company(3, ranks_per_host=1) as hosts:
        for host in hosts.hosts:
            host.start_agent(node="twin" if host.index else "")
        hosts.until_all(Host.answers, "agents")
        hosts.train("--fault", "sleep-forward", "--rank", "0")
        until(lambda: any("twin" in host.warnings() for host in hosts.hosts[1:]), "a warning", 40.0)
        assert "agent.node" in hosts.hosts[1].warnings() + hosts.hosts[2].warnings()
        hosts.strike()
        until(lambda: all(each for each in hosts.confirmed(range(3))), f"verdicts\n{hosts.told()}", 60.0)
        for said in hosts.confirmed(range(3)):
            assert not {1, 2} & {rank for v in said for rank in named(v)}, hosts.told()


def test_a_host_with_another_secret() -> None:
    """Its requests are refused and counted, and it is told so; the others agree."""
    with company(3, ranks_per_host=1) as hosts:
        secret = hosts.hosts[2].folder / "secret"
        secret.write_text("not what the others have at all")
        hosts.hosts[2].environment["SCOUTD_PEERS_KEY_FILE"] = str(secret)
        hosts.start_agents()
        hosts.train("--fault", "sleep-forward", "--rank", "0")
        hosts.strike()
        verdict = hosts.agreed([0, 1])
        assert named(verdict) in ([0], []), hosts.told()
