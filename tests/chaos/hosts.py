"""Hosts made of network namespaces, wired to a switch in a namespace of its own, that can be cut apart.

Everything is named with a random suffix and removed at the end, whatever happened between. The switch has
two bridges; a host is cut off from the others by moving its port to the second one, so that its own link
stays up and packets just do not arrive, which is what a broken network looks like. Nothing leaves the
namespaces: they have no link to the machine's own network.

The hosts share kernel, files and processes with the test; each has a shared-memory root, a runtime and a
state directory of its own (``Site``), and its agent a name of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from scoutd.daemon.cli.client import Client, NoAgent
from scoutd.daemon.codec import to_json
from tests.e2e.harness import SCOUTD, Running, Site, Verdict, forked, named, until

STORE_PORT = 29400


def ip(*words: str) -> None:
    """One ``ip`` command. Raises CalledProcessError with its words in ``stderr``."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def skip_unless_possible() -> None:
    """The test is skipped where namespaces cannot be made, with the reason."""
    missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"network namespaces need {', '.join(missing)} (packages iproute2, util-linux)")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    name = f"scoutd-try-{secrets.token_hex(3)}"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "try", "type", "bridge")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


class Network:
    """``count`` hosts on one switch. ``ipv6``: they have no other addresses."""

    def __init__(self, count: int, ipv6: bool = False) -> None:
        self.tag = secrets.token_hex(3)
        self.ipv6 = ipv6
        self.switch = f"scoutd-{self.tag}-switch"
        self.names = [f"scoutd-{self.tag}-{i}" for i in range(count)]

    def address(self, host: int) -> str:
        return f"fd77::{host + 1}" if self.ipv6 else f"10.77.0.{host + 1}"

    def split(self, hosts: Iterable[int]) -> None:
        """These hosts reach each other and nobody else."""
        for host in hosts:
            ip("-n", self.switch, "link", "set", f"port{host}", "master", "other")

    def heal(self) -> None:
        for host in range(len(self.names)):
            ip("-n", self.switch, "link", "set", f"port{host}", "master", "lan")

    def unplug(self, host: int) -> None:
        """The host's own link is down."""
        ip("-n", self.names[host], "link", "set", "eth0", "down")

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _build(self) -> None:
        ip("netns", "add", self.switch)
        for bridge in ("lan", "other"):
            ip("-n", self.switch, "link", "add", bridge, "type", "bridge")
            ip("-n", self.switch, "link", "set", bridge, "up")
        for host, name in enumerate(self.names):
            self._plug_in(host, name)

    def _plug_in(self, host: int, name: str) -> None:
        """A host with one interface, ``eth0``, and a default route, as machines have."""
        ip("netns", "add", name)
        wire = ["link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0", "netns", name]
        ip("-n", self.switch, *wire)
        ip("-n", self.switch, "link", "set", f"port{host}", "master", "lan", "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "addrgenmode", "none")
        ip("-n", name, "link", "set", "eth0", "up")
        if self.ipv6:
            ip("-n", name, "address", "add", f"{self.address(host)}/64", "dev", "eth0", "nodad")
            ip("-n", name, "-6", "route", "add", "default", "via", "fd77::fffe", "dev", "eth0")
        else:
            ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "route", "add", "default", "via", "10.77.0.254", "dev", "eth0")

    def _remove(self) -> None:
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


class Host(Site):
    """One host: whatever starts here runs in its namespace."""

    def __init__(self, network: Network, index: int) -> None:
        super().__init__()
        self.network = network
        self.index = index
        self.node = f"host-{index}"
        self.agent: Running | None = None
        self.environment["GLOO_SOCKET_IFNAME"] = "eth0"

    def start(self, *command: str, **environment: str) -> Running:
        inside = f"--net=/run/netns/{self.network.names[self.index]}"
        return super().start("nsenter", inside, "--", *command, **environment)

    def start_agent(self, *options: str, node: str = "") -> None:
        """This node's agent runs, the one that ran before if it still does."""
        if self.agent is not None and self.agent.process.poll() is None:
            return
        ports = ("--port", "7641", "--http-port", "9641", "--state-dir", str(self.folder / "state"))
        name = ("--node", node or self.node, "--stall-timeout", "5")
        self.agent = self.start(SCOUTD, "agent", *ports, *name, *options)

    def tell(self, question: str) -> Any:
        """The JSON answer of this host's agent, empty while there is none. Asked over its Unix socket, which
        no network can cut, and without the start of a process."""
        try:
            answer = getattr(Client(f"unix:{self.runtime / 'agent.sock'}"), question)(job="")
        except NoAgent:
            return {}
        return json.loads(to_json(answer))

    def answers(self) -> bool:
        return bool(self.tell("status"))

    def kill_agent(self, number: int = signal.SIGKILL) -> None:
        assert self.agent is not None
        self.agent.process.send_signal(number)
        if number == signal.SIGKILL:
            self.agent.process.wait(10.0)

    def kill(self) -> None:
        """Nothing runs here any more, all at once."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def verdicts(self) -> list[Verdict]:
        found: list[Verdict] = self.tell("verdicts").get("verdicts", [])
        return found

    def members(self) -> dict[str, str]:
        """State of every agent of the newest job, by node."""
        jobs = self.tell("status").get("jobs", [])
        return {m["node"]: m["state"] for job in jobs[-1:] for m in job.get("members", [])}

    def warnings(self) -> str:
        return "\n".join(self.tell("status").get("warnings", []))


class Company:
    """Hosts of one network, and the job that runs on all of them. Its fault waits for ``strike``."""

    def __init__(self, network: Network, hosts: Sequence[Host], ranks_per_host: int) -> None:
        self.network = network
        self.hosts = hosts
        self.ranks_per_host = ranks_per_host
        self.runs: list[Running] = []
        self._jobs = 0
        self._known: set[str] = set()
        self._place = hosts[0]

    @property
    def gate(self) -> Path:
        return self._place.folder / f"gate-{self._jobs}"

    @property
    def progress(self) -> Path:
        return self._place.folder / f"progress-{self._jobs}"

    def start_agents(self, *options: str) -> None:
        for host in self.hosts:
            host.start_agent(*options)
        self.until_all(Host.answers, "an agent on every host")

    def until_all(self, condition: Callable[[Host], Any], what: str, deadline_s: float = 60.0) -> None:
        until(lambda: all(condition(host) for host in self.hosts), what, deadline_s)

    def launch(self, *arguments: str, options: Sequence[str] = ()) -> None:
        """An endless job runs on every host, trains, and is known to all agents."""
        self.train(*arguments, options=options)
        self.until_all(lambda host: len(host.members()) == len(self.hosts), "agents that know each other")

    def train(self, *arguments: str, options: Sequence[str] = ()) -> None:
        """``scoutd run`` with its part of an endless job on every host; it trains."""
        self._known |= {v["id"] for host in self.hosts for v in host.verdicts()}
        self._jobs += 1
        self.progress.mkdir()
        job = [
            "--steps",
            "1000000",
            "--pace",
            "0.1",
            "--when",
            str(self.gate),
            "--progress",
            str(self.progress),
        ]
        self.runs = [
            host.start(SCOUTD, "run", *options, "--", *self.part(host.index, [*job, *arguments]))
            for host in self.hosts
        ]
        until(lambda: self.steps() > 3, "four steps", 90.0)

    def part(self, index: int, arguments: Sequence[str]) -> list[str]:
        """The launcher of one host's ranks."""
        python, launcher, _, script = forked()
        place = ["--first-rank", str(index * self.ranks_per_host)]
        place += ["--world", str(len(self.hosts) * self.ranks_per_host)]
        place += ["--store", f"{self.network.address(0)}:{STORE_PORT + self._jobs}"]
        return [python, launcher, *place, str(self.ranks_per_host), script, *arguments]

    def steps(self) -> int:
        """Finished steps of rank 0."""
        file = self.progress / "rank-0"
        return int(file.read_text()) if file.exists() else 0

    def until_it_trains(self) -> None:
        mark = self.steps()
        until(lambda: self.steps() > mark + 2, "training that goes on", 60.0)

    def strike(self) -> None:
        """The fault fires at its rank's next step."""
        self.gate.touch()

    def end_job(self) -> None:
        """Every launcher is gone, and with it its ranks."""
        for run in self.runs:
            run.process.send_signal(signal.SIGTERM)
        for run in self.runs:
            run.finish(30.0)
        self.runs = []

    def confirmed(self, hosts: Iterable[int]) -> list[list[Verdict]]:
        """Per host: the verdicts that stand confirmed now, those of earlier jobs left out."""
        found = [self.hosts[i].verdicts() for i in hosts]
        return [
            [v for v in each if v["state"] == "CONFIRMED" and v["id"] not in self._known] for each in found
        ]

    def agreed(self, hosts: Iterable[int] = (), cause: str = "", deadline_s: float = 60.0) -> Verdict:
        """The one verdict that stands confirmed on these hosts (default: all), the same on each, as soon as
        it does; ``cause``: wait for this one. A busy machine may make an agent lose sight of others for a
        moment and say so; what nobody may do for a moment is to name somebody: see ``named_by_anybody``."""
        chosen = list(hosts) or list(range(len(self.hosts)))

        def said() -> list[Verdict]:
            found = self.confirmed(chosen)
            if not all(len(each) == 1 and cause in ("", each[0]["cause"]) for each in found):
                return []
            first = substance(found[0][0])
            return found[0] if all(substance(each[0]) == first for each in found) else []

        try:
            return until(said, f"one verdict {cause} on hosts {chosen}", deadline_s)[0]
        except AssertionError as error:
            contents = [str(substance(v)) for each in self.confirmed(chosen) for v in each]
            raise AssertionError("\n".join([str(error), *contents, self.told()])) from None

    def named_by_anybody(self) -> set[int]:
        """Every rank that any agent has ever named in this job, in whatever state the verdict is now."""
        return {
            rank
            for host in self.hosts
            for verdict in host.verdicts()
            if verdict["id"] not in self._known
            for rank in named(verdict)
        }

    def told(self) -> str:
        """What every agent has said, for people who look at a failure."""
        lines = []
        for host in self.hosts:
            said = [
                f"{v['id']} {v['state']} {v['cause']} {v['status']}: {v['summary']}" for v in host.verdicts()
            ]
            lines += [host.node, *said, host.warnings()]
        return "\n".join(lines)


def substance(verdict: Verdict) -> dict[str, Any]:
    """What must be equal on all agents: everything but ages, times and stacks."""
    names = ("id", "cause", "symptom", "status", "scope", "phase", "operation", "summary", "action")
    found: dict[str, Any] = {name: verdict.get(name) for name in names}
    found["implicated"] = sorted((i.get("rank", 0), i.get("node", "")) for i in verdict.get("implicated", []))
    found["cleared"] = sorted(
        (c.get("rank", 0), tuple(c.get("waits_for", []))) for c in verdict.get("cleared", [])
    )
    return found


@contextmanager
def company(count: int = 4, ranks_per_host: int = 2, ipv6: bool = False) -> Iterator[Company]:
    """Hosts, without agents yet; afterwards nothing of them is left."""
    skip_unless_possible()
    with ExitStack() as stack:
        network = stack.enter_context(Network(count, ipv6))
        hosts = [Host(network, index) for index in range(count)]
        for host in hosts:
            stack.enter_context(host)
        yield Company(network, hosts, ranks_per_host)
