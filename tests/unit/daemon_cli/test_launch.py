from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from scoutd.daemon.cli import launch


def test_the_injection_comes_first_and_the_users_path_stays() -> None:
    environ = launch.environment("t", {"PYTHONPATH": "/a:/b", "X": "1"})
    assert environ["PYTHONPATH"] == f"{launch.INJECTION}:/a:/b"
    assert (environ["SCOUTD_RUN"], environ["X"]) == ("t", "1")


def test_a_run_in_a_run_does_not_pile_up_injections() -> None:
    once = launch.environment("a", {})
    assert launch.environment("b", once) == {**once, "SCOUTD_RUN": "b"}


def test_tags_differ() -> None:
    assert len({launch.new_tag() for _ in range(64)}) == 64


async def code_of(*command: str) -> int:
    child = await launch.start(command, "tag")
    return await child.exit_code()


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_exit_code_is_what_a_shell_says(script: str, code: int) -> None:
    assert asyncio.run(code_of("sh", "-c", script)) == code


def test_a_command_that_does_not_exist_is_127(tmp_path: Path) -> None:
    with pytest.raises(launch.CannotStart, match="command not found: no-such-thing") as caught:
        asyncio.run(code_of("no-such-thing"))
    assert caught.value.code == 127


def test_a_file_that_is_not_executable_is_126(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo")
    with pytest.raises(launch.CannotStart, match="Permission denied") as caught:
        asyncio.run(code_of(str(script)))
    assert caught.value.code == 126


def test_a_script_without_its_interpreter_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    with pytest.raises(launch.CannotStart, match="its interpreter does not exist"):
        asyncio.run(code_of(str(script)))


def test_a_signal_reaches_the_whole_group() -> None:
    async def scenario() -> int:
        child = await launch.start(("sh", "-c", "sleep 60; exit 0"), "tag")
        assert child.grouped
        assert os.getpgid(child.pid) == child.pid
        child.pass_on(signal.SIGTERM)
        return await child.exit_code()

    assert asyncio.run(scenario()) == 143


def test_ctrl_c_of_the_terminal_is_not_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> int:
        monkeypatch.setattr(launch, "behind_terminal", lambda: True)
        child = await launch.start(("sleep", "60"), "tag")
        assert os.getpgid(child.pid) == os.getpgrp()
        child.pass_on(signal.SIGINT)
        child.pass_on(signal.SIGTERM)
        return await child.exit_code()

    assert asyncio.run(scenario()) == 143
