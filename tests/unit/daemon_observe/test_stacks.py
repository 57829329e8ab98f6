"""py-spy on a real child, and what is said where there is no stack."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scoutd.agent.evidence import Stack
from scoutd.daemon.observe import stacks
from scoutd.daemon.observe.stacks import NO_PERMISSION, StackCapture, find_program, source_line
from tests.unit.daemon_observe.conftest import World

Spawn = Callable[..., "subprocess.Popen[str]"]
SLEEPER = "import time\ndef stuck():\n    time.sleep(600)\nprint('up', flush=True)\nstuck()\n"


def captured(world: World, pid: int, native: bool = False, function: str = "") -> Stack:
    """The stack in the report that follows a capture; captured again until it is inside of ``function``,
    because a child says that it is up a moment before it calls it."""
    world.rank(0, pid=pid)

    async def scenario() -> Stack:
        observer = world.observer()
        deadline = time.monotonic() + 30
        while True:
            observer.observe()
            await observer.capture_stack("train-ab12", 0, native)
            (observation,) = observer.observe()
            stack = observation.report.ranks[0].stack
            assert stack is not None
            inside = any(frame.function == function for frame in stack.frames)
            if not function or inside or stack.refused == NO_PERMISSION or time.monotonic() > deadline:
                observer.close()
                return stack

    return asyncio.run(scenario())


@pytest.fixture
def sleeper(spawn: Spawn, tmp_path: Path) -> int:
    script = tmp_path / "train.py"
    script.write_text(SLEEPER)
    return spawn("import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", str(script)).pid


@pytest.mark.skipif(not find_program(), reason="py-spy is not installed")
@pytest.mark.parametrize("native", [False, True])
def test_a_sleeping_child(world: World, sleeper: int, native: bool) -> None:
    stack = captured(world, sleeper, native, "stuck")
    if stack.refused == NO_PERMISSION:
        pytest.skip(stack.refused)
    assert stack.refused == ""
    frame = next(f for f in stack.frames if not f.native)
    assert (frame.function, frame.line, stack.native, stack.waits) == ("stuck", 3, native, False)


@pytest.mark.skipif(not find_program(), reason="py-spy is not installed")
def test_a_child_that_holds_the_gil(world: World, spawn: Spawn) -> None:
    code = "import ctypes\ndef stuck():\n    ctypes.PyDLL(None).sleep(600)\nprint('up', flush=True)\nstuck()"
    stack = captured(world, spawn(code).pid, function="stuck")
    if stack.refused == NO_PERMISSION:
        pytest.skip(stack.refused)
    assert (stack.frames[0].function, stack.waits) == ("stuck", False)


def test_a_stopped_process_is_not_captured(world: World, sleeper: int) -> None:
    os.kill(sleeper, signal.SIGSTOP)
    os.waitpid(sleeper, os.WUNTRACED)
    assert captured(world, sleeper).refused == "the process is stopped"


def test_a_dead_process_is_not_captured(world: World, sleeper: int) -> None:
    os.kill(sleeper, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper, os.WEXITED | os.WNOWAIT)
    assert captured(world, sleeper).refused == "the process is gone"


def fake(tmp_path: Path, body: str) -> str:
    path = tmp_path / "py-spy"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def refused(world: World, program: str, times: int = 1) -> str:
    world.rank(0)

    async def scenario() -> str:
        observer = world.observer()
        observer.observe()
        (job,) = observer._jobs.values()
        capture = StackCapture(world.clock, program)
        for _ in range(times):
            await capture.capture(job.ranks[0], native=False)
        stack = job.ranks[0].stack
        assert stack is not None
        return stack[0].refused

    return asyncio.run(scenario())


def test_a_missing_permission_is_said_and_not_asked_for_again(world: World, tmp_path: Path) -> None:
    program = fake(tmp_path, f"echo asked >> {tmp_path}/log; echo 'Error: Permission Denied' >&2; exit 1")
    assert refused(world, program, times=3) == NO_PERMISSION
    assert (tmp_path / "log").read_text() == "asked\n"


def test_a_hanging_tracer_is_killed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "PYTHON_TIMEOUT_S", 0.1)
    assert refused(world, fake(tmp_path, "exec sleep 600")) == "py-spy: no answer within 0.1 s"


def test_an_unreadable_answer_is_said(world: World, tmp_path: Path) -> None:
    assert "unreadable" in refused(world, fake(tmp_path, "echo nonsense"))


def test_without_py_spy_the_reason_is_said(world: World) -> None:
    assert refused(world, "/nowhere/py-spy") == "py-spy: No such file or directory"


def test_a_source_line_is_read_from_regular_files_only(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("one\ntwo\n")
    os.mkfifo(tmp_path / "fifo")
    assert source_line(str(source), 2) == "two"
    assert source_line(str(source), 3) == ""
    assert source_line(str(tmp_path / "fifo"), 1) == ""
    assert source_line("<string>", 1) == ""
