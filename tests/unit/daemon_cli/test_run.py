"""``scoutd run`` with a fake node agent and small commands: exit codes, verdict file, what is shown."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from scoutd.daemon.cli.app import run_app
from scoutd.proto.v1 import verdict_pb2 as pb

from .conftest import FakeAgent
from .verdicts import hang

Capture = pytest.CaptureFixture[str]


def run(place: Path, *options: str, command: Sequence[str]) -> tuple[int, list[dict[str, object]]]:
    """The exit code and the lines of the verdict file."""
    path = place / "verdicts.jsonl"
    code = run_app(["run", "--verdicts", str(path), *options, "--", *command])
    return code, [json.loads(line) for line in path.read_text().splitlines()]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_healthy_command_ends_with_its_own_code(node_agent: FakeAgent, place: Path, capfd: Capture) -> None:
    assert run(place, command=["sh", "-c", "echo hello; exit 5"]) == (5, [])
    output = capfd.readouterr()
    assert output.out == "hello\n"
    assert "HANG" not in output.err


def test_on_stop_the_first_confirmed_verdict_ends_the_job(
    node_agent: FakeAgent, place: Path, capfd: Capture
) -> None:
    node_agent.known = [hang(state=pb.OPEN), hang()]
    code, lines = run(place, "--on-verdict", "stop", command=["sleep", "60"])
    assert code == 3
    assert [line["state"] for line in lines] == ["OPEN", "CONFIRMED"]
    error = capfd.readouterr().err
    assert error.count("HANG · RANK_STALLED · rank 2") == 1
    assert "ending the job because of verdict 0a1b2c3d4e5f" in error.partition("HANG · RANK_STALLED")[0]


def test_on_continue_a_verdict_changes_nothing(node_agent: FakeAgent, place: Path, capfd: Capture) -> None:
    flag = place / "flag"
    node_agent.known = [hang()]
    path = place / "verdicts.jsonl"

    def release_when_written() -> None:
        until(lambda: path.exists() and path.read_text())
        flag.touch()

    release = threading.Thread(target=release_when_written)
    release.start()
    code, lines = run(place, command=["sh", "-c", f"until test -e {flag}; do sleep 0.02; done; exit 4"])
    release.join()
    assert code == 4
    assert [line["state"] for line in lines] == ["CONFIRMED"]
    assert "scoutd explain" in capfd.readouterr().err


def test_what_the_agent_concludes_at_the_end_counts(node_agent: FakeAgent, place: Path) -> None:
    node_agent.final = [hang(cause=pb.PROCESS_DEAD)]
    code, lines = run(place, "--on-verdict", "stop", command=["sh", "-c", "sleep 0.3; exit 1"])
    assert (code, [line["cause"] for line in lines]) == (3, ["PROCESS_DEAD"])
    assert len(node_agent.concluded) == 1


def test_a_command_that_succeeds_is_not_failed_by_a_late_verdict(node_agent: FakeAgent, place: Path) -> None:
    node_agent.final = [hang()]
    code, lines = run(place, "--on-verdict", "stop", command=["sleep", "0.3"])
    assert (code, len(lines)) == (0, 1)


def test_a_stream_that_breaks_repeats_nothing(node_agent: FakeAgent, place: Path, capfd: Capture) -> None:
    node_agent.known = [hang()]
    flag = place / "flag"

    def break_once() -> None:
        until(lambda: node_agent.watched == 1)
        node_agent.end_streams()
        until(lambda: node_agent.watched == 2)
        node_agent.say(hang(id="second"))
        until(lambda: "second" in (place / "verdicts.jsonl").read_text())
        flag.touch()

    breaker = threading.Thread(target=break_once)
    breaker.start()
    _, lines = run(place, command=["sh", "-c", f"until test -e {flag}; do sleep 0.02; done"])
    breaker.join()
    assert [line["id"] for line in lines] == ["0a1b2c3d4e5f", "second"]


def test_deaths_after_the_users_interrupt_are_no_verdicts(node_agent: FakeAgent, place: Path) -> None:
    def interrupt() -> None:
        until(lambda: node_agent.watched)
        os.kill(os.getpid(), signal.SIGTERM)
        node_agent.say(hang(cause=pb.PROCESS_DEAD))

    node_agent.final = [hang(cause=pb.PROCESS_DEAD)]
    thread = threading.Thread(target=interrupt)
    thread.start()
    assert run(place, "--on-verdict", "stop", command=["sleep", "60"]) == (143, [])
    thread.join()


def test_a_second_interrupt_kills(node_agent: FakeAgent, place: Path) -> None:
    ready = place / "ready"
    script = f"trap '' INT TERM; touch {ready}; while :; do sleep 0.05; done"

    def interrupt_twice() -> None:
        until(ready.exists)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt_twice)
    thread.start()
    assert run(place, command=["sh", "-c", script])[0] == 128 + signal.SIGKILL
    thread.join()


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["no-such-command"], 127, "scoutd: command not found: no-such-command\n"),
        (["/etc/passwd"], 126, "scoutd: cannot execute /etc/passwd: Permission denied\n"),
    ],
)
def test_a_command_that_cannot_start(
    place: Path, capfd: Capture, command: list[str], code: int, said: str
) -> None:
    assert run_app(["run", "--", *command]) == code
    assert capfd.readouterr().err == said


def test_an_unwritable_file_of_verdicts_is_found_before_anything_starts(place: Path, capfd: Capture) -> None:
    mark = place / "mark"
    assert run_app(["run", "--verdicts", f"{place}/no/v.jsonl", "--", "touch", str(mark)]) == 2
    error = capfd.readouterr().err
    assert error == f"scoutd: --verdicts {place}/no/v.jsonl: cannot write: No such file or directory\n"
    assert not mark.exists()


def test_a_bad_option_is_found_before_anything_starts(place: Path, capfd: Capture) -> None:
    mark = place / "mark"
    assert run_app(["run", "--stall-timeout", "nan", "--", "touch", str(mark)]) == 2
    assert "stall.timeout_s takes a number" in capfd.readouterr().err
    assert not mark.exists()


def test_a_command_without_dashes_keeps_its_own_options(
    node_agent: FakeAgent, place: Path, capfd: Capture
) -> None:
    assert run_app(["run", "echo", "--port", "x"]) == 0
    assert capfd.readouterr().out == "--port x\n"


@pytest.mark.parametrize(
    ("options", "environment", "told"),
    [
        ([], {}, "50 1 seeded"),
        (["--replay-every", "5", "--replay-variants", "2"], {}, "5 2 seeded"),
        ([], {"SCOUTD_REPLAY_EVERY": "7"}, "7 1 seeded"),
        (["--replay-every", "0"], {"SCOUTD_REPLAY_EVERY": "7"}, "0 1 seeded"),
        (["--replay-mode", "both"], {"SCOUTD_REPLAY_MODE": "broadcast"}, "50 1 both"),
        ([], {"SCOUTD_REPLAY_MODE": "broadcast"}, "50 1 broadcast"),
    ],
)
def test_the_command_is_told_how_often_and_on_what_to_replay(
    options: list[str],
    environment: dict[str, str],
    told: str,
    node_agent: FakeAgent,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SCOUTD_REPLAY_EVERY", "SCOUTD_REPLAY_VARIANTS", "SCOUTD_REPLAY_MODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    script = 'echo "$SCOUTD_REPLAY_EVERY $SCOUTD_REPLAY_VARIANTS $SCOUTD_REPLAY_MODE"'
    assert run_app(["run", *options, "--", "sh", "-c", script]) == 0
    assert told in capfd.readouterr().out


def test_the_command_finds_tag_and_injection(node_agent: FakeAgent, place: Path, capfd: Capture) -> None:
    assert run_app(["run", "--", "sh", "-c", "echo $SCOUTD_RUN $PYTHONPATH"]) == 0
    tag, path = capfd.readouterr().out.split()
    assert len(tag) == 8
    assert path.split(":")[0].endswith("/shim/inject")
