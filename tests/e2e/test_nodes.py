"""Several agents, each with a share of the ranks: the same verdict on all of them, whatever broke."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scoutd.daemon.cli.launch import INJECTION
from tests.e2e.harness import SCOUTD, Running, Site, Verdict, cleared, forked, named, until

HOOK = "{{ cat; echo; }} >> {folder}/$PPID"
"""Every agent writes what it says into a file of its own, named by its pid."""


class Cluster:
    """``scoutd run --nodes N`` over a job, and what each of its agents says."""

    def __init__(self, site: Site, nodes: int, ranks: int, *job: str) -> None:
        self.site, self.nodes = site, nodes
        self.said = site.folder / "said"
        self.said.mkdir()
        config = site.folder / "agents.toml"
        config.write_text(f"[hooks]\non_verdict = '{HOOK.format(folder=self.said)}'\n")
        self.running: Running = site.watch(
            forked(*job, ranks=ranks), "--nodes", str(nodes), "--config", str(config), stop=False
        )

    def verdicts(self) -> dict[str, list[Verdict]]:
        return {file.name: lines(file) for file in self.said.iterdir()}

    def confirmed(self) -> dict[str, Verdict]:
        """Each agent's confirmed verdict, by its pid; an agent that confirms two fails the test."""
        found: dict[str, Verdict] = {}
        for pid, verdicts in self.verdicts().items():
            newest = {v["id"]: v for v in verdicts if v["state"] == "CONFIRMED"}
            assert len(newest) <= 1, newest
            found.update((pid, v) for v in newest.values())
        return found

    def agreed(self, agents: int) -> Verdict:
        """The verdict that so many agents have confirmed, the same on all."""
        until(lambda: len(self.confirmed()) >= agents, f"{agents} agents confirm a verdict", 60.0)
        verdicts = list(self.confirmed().values())
        assert len({substance(v) for v in verdicts}) == 1, "\n".join(substance(v) for v in verdicts)
        return verdicts[0]

    def told(self) -> list[Verdict]:
        """What each agent that answers would tell now: its confirmed verdicts, newest content."""
        found = []
        for socket in self.sockets():
            answer = self.site.start(SCOUTD, "verdicts", "--address", f"unix:{socket}", "--json").finish(30.0)
            said = json.loads(answer.out)["verdicts"] if answer.code == 0 and answer.out else []
            found += [v for v in said if v["state"] == "CONFIRMED"]
        return found

    def end(self) -> None:
        """Ended by its user; a stopped rank is woken, so that it hears."""
        for pid in self.site.processes():
            os.kill(pid, signal.SIGCONT)
        self.running.end()
        self.site.assert_clean()

    def sockets(self) -> list[Path]:
        return sorted(self.site.runtime.glob("*.sock"))

    def status(self, socket: Path) -> dict[str, Any]:
        answer = self.site.start(SCOUTD, "status", "--address", f"unix:{socket}", "--json").finish(30.0)
        return json.loads(answer.out) if answer.code == 0 and answer.out else {}

    def members(self) -> dict[str, dict[str, str]]:
        """Per agent that answers: its members and their states."""
        seen: dict[str, dict[str, str]] = {}
        for socket in self.sockets():
            status = self.status(socket)
            for job in status.get("jobs", []):
                seen[status["node"]] = {m["node"]: m["state"] for m in job["members"]}
        return seen

    def know_each_other(self) -> bool:
        seen = self.members()
        return len(seen) == self.nodes and all(len(members) == self.nodes for members in seen.values())

    def pid_of(self, node: str) -> int:
        files = [json.loads(file.read_text()) for file in self.site.runtime.glob("*.sock.json")]
        (pid,) = [int(each["pid"]) for each in files if each["node"] == node]
        return pid


def lines(file: Path) -> list[Verdict]:
    whole = file.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


def substance(verdict: Verdict) -> str:
    """What must be equal on all agents. For whom a rank waited while the job was falling apart is not: its
    last words reach the agents after some of them have judged the first death."""
    dying = verdict["cause"] == "PROCESS_DEAD"
    waits: Any = sorted(cleared(verdict)) if dying else sorted(cleared(verdict).items())
    parts = (verdict["id"], verdict["cause"], verdict["summary"], named(verdict), waits)
    return str(parts)


def faults(fault: str, rank: int) -> Sequence[str]:
    return ("--fault", fault, "--rank", str(rank), "--steps", "40")


@pytest.mark.parametrize(
    ("nodes", "ranks", "fault", "cause"),
    [
        (4, 8, "sleep-forward", "RANK_STALLED"),
        (4, 8, "raise", "PROCESS_DEAD"),
        (4, 4, "metric-smaller", "COLLECTIVE_MISMATCH"),
        (2, 4, "kill", "PROCESS_DEAD"),
        (2, 4, "stop", "PROCESS_STOPPED"),
        (2, 4, "metric-broadcast", "COLLECTIVE_MISMATCH"),
    ],
)
def test_all_agents_say_the_same(site: Site, nodes: int, ranks: int, fault: str, cause: str) -> None:
    cluster = Cluster(site, nodes, ranks, *faults(fault, 1))
    verdict = cluster.agreed(nodes)
    assert (verdict["cause"], named(verdict)) == (cause, [1])
    assert sorted(cleared(verdict)) == [rank for rank in range(ranks) if rank != 1]
    cluster.end()


def test_a_healthy_job_on_two_agents(site: Site) -> None:
    cluster = Cluster(site, 2, 4, "--steps", "60", "--pace", "0.1")
    until(cluster.know_each_other, "the agents know each other")
    outcome = cluster.running.finish()
    assert outcome.code == 0, outcome
    assert not [v for said in cluster.verdicts().values() for v in said], outcome
    site.assert_clean()


def test_an_agent_that_dies_is_no_dead_node(site: Site) -> None:
    """Its ranks go on; it comes back under a higher incarnation and the cluster is whole again."""
    cluster = Cluster(site, 3, 3, "--steps", "4000", "--pace", "0.05")
    until(cluster.know_each_other, "the agents know each other")
    os.kill(cluster.pid_of("node-1"), signal.SIGKILL)
    until(lambda: not cluster.know_each_other(), "one is gone")
    until(cluster.know_each_other, "it is back")
    until(lambda: set(cluster.members()["node-0"].values()) == {"ALIVE"}, "all are in reach")
    assert not [v for said in cluster.verdicts().values() for v in said]
    cluster.end()


def test_a_stopped_agent_does_not_keep_the_others_from_their_verdict(site: Site) -> None:
    gate = site.folder / "gate"
    cluster = Cluster(
        site, 4, 4, "--fault", "sleep-forward", "--rank", "1", "--steps", "9000", "--when", str(gate)
    )
    until(cluster.know_each_other, "the agents know each other")
    stopped = cluster.pid_of("node-3")
    os.kill(stopped, signal.SIGSTOP)
    gate.touch()
    verdict = cluster.agreed(3)
    assert (verdict["cause"], named(verdict)) == ("RANK_STALLED", [1])
    os.kill(stopped, signal.SIGCONT)
    # What was confirmed while its ranks were unknown stays as it was: the same verdict, fewer cleared.
    until(lambda: [v["id"] for v in cluster.told()] == 4 * [verdict["id"]], "all four tell the same verdict")
    assert all(named(v) == [1] for v in cluster.told())
    cluster.end()


def start_agent(site: Site, share: str, node: str, *options: str) -> Path:
    """An agent as a service runs it, for a share of the ranks; returns its socket."""
    socket = site.runtime / f"{share.replace('/', '-of-')}.sock"
    where = ("--socket", str(socket), "--port", "0", "--http-port", "0", "--state-dir", "%DIR%/state")
    what = ("--share", share, "--node", node, "--bind", "127.0.0.1", "--stall-timeout", "5")
    site.start(SCOUTD, "agent", *where, *what, *options)
    return socket


def job_of(site: Site, socket: Path) -> dict[str, Any]:
    """The job as the agent behind this socket sees it; empty while it sees none."""
    answer = site.start(SCOUTD, "status", "--address", f"unix:{socket}", "--json").finish(30.0)
    status = json.loads(answer.out) if answer.code == 0 and answer.out else {"jobs": [], "warnings": []}
    return {"members": [], **(status["jobs"] or [{}])[0], "warnings": status["warnings"]}


def train(site: Site) -> Running:
    """A job with shims, which no agent has started."""
    return site.start(*forked("--steps", "100000"), PYTHONPATH=str(INJECTION))


def test_agents_find_each_other_through_the_trainers_store(site: Site) -> None:
    sockets = [start_agent(site, f"{index}/2", f"host-{index}") for index in range(2)]
    running = train(site)

    def states() -> list[dict[str, str]]:
        return [{m["node"]: m["state"] for m in job_of(site, socket)["members"]} for socket in sockets]

    until(lambda: states() == 2 * [{"host-0": "ALIVE", "host-1": "ALIVE"}], "both know both")
    (layout,) = site.ask("topology", "--address", f"unix:{sockets[1]}")["jobs"]
    assert [place["node"] for place in layout["ranks"]] == 2 * ["host-0"] + 2 * ["host-1"]
    running.end()


def test_two_agents_of_one_name_are_told_so(site: Site) -> None:
    sockets = [start_agent(site, f"{index}/2", "twin") for index in range(2)]
    running = train(site)

    def warned() -> bool:
        said = [" ".join(job_of(site, socket)["warnings"]) for socket in sockets]
        return all("has this node's name twin" in text for text in said)

    until(warned, "both warn about the name")
    running.end()
