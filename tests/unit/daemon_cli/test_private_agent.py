"""The private agent with real agent processes: it is ready, comes back, gives up, and leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from scoutd.daemon import runtime
from scoutd.daemon.cli.app import run_app
from scoutd.daemon.cli.options import RunOptions
from scoutd.daemon.cli.private_agent import agent_command
from scoutd.daemon.cli.tree import is_alive

Capture = pytest.CaptureFixture[str]
DEADLINE_S = 30.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for(file: Path) -> list[str]:
    return ["sh", "-c", f"until test -e {file}; do sleep 0.02; done"]


def agent_pid() -> int:
    found = runtime.live_endpoints()
    return found[0].pid if found else 0


def in_parallel(body: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=body)
    thread.start()
    return thread


def test_the_agent_watches_and_leaves_nothing(place: Path, capfd: Capture) -> None:
    flag = place / "flag"
    seen: list[int] = []
    said: list[str] = []

    def listen() -> str:
        said.append(capfd.readouterr().err)
        return "".join(said)

    def look() -> None:
        until(lambda: "watching" in listen())
        seen.append(agent_pid())
        flag.touch()

    thread = in_parallel(look)
    assert run_app(["run", "--node", "node-x", "--", *wait_for(flag)]) == 0
    thread.join()
    line = "scoutd: watching (node node-x, status: scoutd status, metrics: http://127.0.0.1:"
    assert "".join(said).startswith(line)
    assert not psutil.pid_exists(seen[0])
    assert list(place.glob("run-*")) == []


def test_an_agent_that_is_killed_comes_back(place: Path, capfd: Capture) -> None:
    flag = place / "flag"

    def kill_once() -> None:
        until(agent_pid)
        first = agent_pid()
        os.kill(first, signal.SIGKILL)
        until(lambda: agent_pid() not in (0, first))
        flag.touch()

    thread = in_parallel(kill_once)
    assert run_app(["run", "--", *wait_for(flag)]) == 0
    thread.join()
    error = capfd.readouterr().err
    assert error.count("the agent died (SIGKILL), starting it again; the job is not affected") == 1
    assert error.count("watching") == 1


def test_a_stopped_agent_does_not_keep_the_run_from_ending(place: Path) -> None:
    flag, seen = place / "flag", []

    def stop() -> None:
        until(agent_pid)
        seen.append(agent_pid())
        os.kill(seen[0], signal.SIGSTOP)
        flag.touch()

    thread = in_parallel(stop)
    assert run_app(["run", "--", *wait_for(flag)]) == 0
    thread.join()
    assert not psutil.pid_exists(seen[0])


def test_a_port_in_use_leaves_the_job_unobserved(place: Path, capfd: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run_app(["run", "--http-port", port, "--", "sh", "-c", "sleep 3; exit 6"]) == 6
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    assert error.startswith("scoutd: no agent, the job runs unobserved: ")
    assert port in error


def test_an_unusable_runtime_directory_leaves_the_job_unobserved(
    place: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOUTD_RUNTIME_DIR", "/proc/nowhere")
    assert run_app(["run", "--", "sh", "-c", "exit 6"]) == 6
    assert capfd.readouterr().err.startswith("scoutd: no agent, the job runs unobserved: runtime directory")


def test_the_agent_dies_with_a_supervisor_that_is_killed(place: Path) -> None:
    command = [sys.executable, "-c", "from scoutd.daemon.cli import main; main()", "run", "--", "sleep", "60"]
    temporary = place / "tmp"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environ) as supervisor:
        until(agent_pid)
        agent = psutil.Process(agent_pid())
        child = next(each for each in psutil.Process(supervisor.pid).children() if each.pid != agent.pid)
        supervisor.kill()
    until(lambda: not is_alive(agent))
    assert list(temporary.iterdir()) == []
    child.kill()


def test_paths_are_absolute_because_the_agent_runs_elsewhere(place: Path) -> None:
    options = RunOptions(("x",), config=Path("a.toml"), state_dir=Path("state"), stall_timeout_s=5.0)
    command = agent_command("tag", place / "s.sock", options, place)
    flags = dict(zip(command[5::2], command[6::2], strict=True))
    assert flags["--config"] == f"{os.getcwd()}/a.toml"
    assert flags["--state-dir"] == f"{os.getcwd()}/state"
    assert (flags["--stall-timeout"], flags["--port"], flags["--http-port"]) == ("5", "0", "0")
