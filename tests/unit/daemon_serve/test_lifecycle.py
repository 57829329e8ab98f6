"""An agent from start to stop, in this process, on real sockets and an empty shared-memory root."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scoutd.daemon import log, runtime
from scoutd.daemon.__main__ import main
from scoutd.daemon.errors import ConfigError, LocalError
from scoutd.daemon.lifecycle import Agent, Invocation, default_state_directory
from scoutd.proto.v1 import query_pb2 as pb
from scoutd.proto.v1 import query_pb2_grpc


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A runtime directory of its own; what the agent configured globally is undone."""
    monkeypatch.setenv("SCOUTD_RUNTIME_DIR", str(tmp_path / "r"))
    handlers = list(logging.getLogger().handlers)
    level = logging.getLogger().level
    yield
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def invocation(tmp_path: Path, **flags: object) -> Invocation:
    return Invocation(flags={"observe.root": str(tmp_path / "shm"), **flags}, run="t")


def live(made: Invocation, scenario: Callable[[Agent], Awaitable[None]]) -> Agent:
    """The scenario runs while the agent is ready; then the agent is stopped."""

    async def body() -> Agent:
        agent = Agent(made, made.load())
        running = asyncio.ensure_future(agent.run())
        try:
            while not agent.ready and not running.done():
                await asyncio.sleep(0.001)
            if not running.done():
                await scenario(agent)
                agent.stop()
        finally:
            await asyncio.wait_for(running, 20)
        return agent

    return asyncio.run(body())


async def serving(agent: Agent) -> bool:
    async with grpc.aio.insecure_channel(f"unix:{agent.socket}") as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def test_ready_agent_serves_and_a_stopped_one_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(agent: Agent) -> None:
        endpoint = runtime.read_endpoint(agent.socket)
        assert endpoint is not None
        assert (endpoint.pid, endpoint.run, agent.socket) == (os.getpid(), "t", runtime.run_socket("t"))
        assert await serving(agent)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{endpoint.port}") as channel:
            status = await query_pb2_grpc.QueryStub(channel).GetStatus(pb.GetStatusRequest())
        assert list(status.jobs) == list(status.warnings) == []

    agent = live(invocation(tmp_path), scenario)
    assert not agent.ready
    assert list((tmp_path / "r").iterdir()) == []


def test_signals_reload_and_stop(tmp_path: Path) -> None:
    file = tmp_path / "scoutd.toml"
    file.write_text("[stall]\ntimeout_s = 5\n")
    made = Invocation(file, {}, invocation(tmp_path).flags, "t")

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    async def scenario(agent: Agent) -> None:
        file.write_text("[stall]\ntimeout_s = 7\n[hooks]\non_verdict = 'true'\n")
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(until(lambda: agent.config.stall.timeout_s == 7.0), 20)
        assert agent._hook.command == "true"
        file.write_text("[stall]\ntimeout_s = 'x'\n")
        agent.reload()
        assert agent.config.stall.timeout_s == 7.0
        assert await serving(agent)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(until(agent._stop.is_set), 20)

    live(made, scenario)


def test_http_port_in_use_closes_what_was_already_open(tmp_path: Path) -> None:
    async def scenario(agent: Agent) -> None:
        raise AssertionError("must not become ready")

    async def occupied() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        made = invocation(tmp_path, **{"agent.http_port": str(port)})
        agent = Agent(made, made.load())
        with pytest.raises(LocalError, match=r"agent\.http_port"):
            await agent.run()
        server.close()

    asyncio.run(occupied())
    assert list((tmp_path / "r").iterdir()) == []


def test_asked_state_directory_must_work_and_a_default_one_degrades(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    made = invocation(tmp_path, **{"agent.state_dir": str(tmp_path / "file")})
    with pytest.raises(LocalError, match="state directory"):
        asyncio.run(Agent(made, made.load()).run())

    monkeypatch.setattr("scoutd.daemon.lifecycle.default_state_directory", lambda _: tmp_path / "file")
    node = Invocation(flags={**invocation(tmp_path).flags, "agent.port": "0", "agent.http_port": "0"})

    async def scenario(agent: Agent) -> None:
        assert any("kept in memory only" in warning for warning in agent._warnings())
        assert agent.socket == runtime.node_socket()

    live(node, scenario)


def test_private_agent_takes_addresses_from_flags_only(tmp_path: Path) -> None:
    environ = {"SCOUTD_AGENT_PORT": "7641", "SCOUTD_AGENT_SOCKET": "/run/scoutd/agent.sock"}
    agent = Invocation(environ=environ, run="t").load().agent
    assert (agent.port, agent.http_port, agent.socket) == (0, 0, str(runtime.run_socket("t")))
    flags = {"agent.port": "7000", "agent.socket": "/x/y.sock"}
    agent = Invocation(environ=environ, flags=flags, run="t").load().agent
    assert (agent.port, agent.http_port, agent.socket) == (7000, 0, "/x/y.sock")
    assert Invocation(environ=environ).load().agent.port == 7641


def test_default_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_state_directory({}) == Path("/var/lib/scoutd")
    monkeypatch.setattr("os.geteuid", lambda: 7)
    assert default_state_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/scoutd")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--port", "x"], "scoutd: flag --port = 'x' is not accepted"),
        (["--config", "/none.toml"], "scoutd: /none.toml: cannot read the configuration"),
        (["--run", "t", "--bind", "192.0.2.1"], "scoutd: cannot listen on 192.0.2.1"),
        (["--run", "t", "--socket", "/none/a.sock"], "scoutd: cannot listen on /none/a.sock"),
    ],
)
def test_a_refused_start_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOUTD_AGENT_LOG_LEVEL", "error")
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(expected)


def test_config_error_is_raised_by_a_reload_of_a_broken_file(tmp_path: Path) -> None:
    file = tmp_path / "scoutd.toml"
    file.write_text("[stall]\nnope = 1\n")
    with pytest.raises(ConfigError, match=r"unknown key stall\.nope"):
        Invocation(file).load()


def test_the_agent_never_imports_torch_typer_or_rich() -> None:
    program = (
        "import sys, scoutd.daemon.lifecycle as x; "
        "print([m for m in ('torch', 'typer', 'rich', 'click') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_log_is_json_or_short_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    log.logger().info("ready", node="n0")
    log.logger().debug("unseen")
    logging.getLogger("asyncio").warning("slow %s", "callback")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["node"]) == ("ready", "info", "n0")
    assert (second["event"], second["logger"]) == ("slow callback", "asyncio")
    log.configure("info", "text")
    log.logger().warning("degraded", reason="no disk")
    assert capsys.readouterr().err[13:] == "warning degraded  reason=no disk\n"
