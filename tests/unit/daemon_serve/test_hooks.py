"""The on_verdict hook: order, bounds, and failures that are counted."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from scoutd.daemon.hooks import QUEUE_LENGTH, VerdictHook


def run(command: str, *texts: str, timeout_s: float = 20.0) -> VerdictHook:
    async def body() -> VerdictHook:
        hook = VerdictHook(command, timeout_s)
        for text in texts:
            hook.offer(text)
        await hook.drain(20.0)
        return hook

    return asyncio.run(body())


def test_each_verdict_arrives_on_standard_input_in_order(tmp_path: Path) -> None:
    hook = run(f"cat >> {tmp_path / 'out'}", '{"id":"a"}', '{"id":"b"}')
    assert (tmp_path / "out").read_text() == '{"id":"a"}\n{"id":"b"}\n'
    assert (hook.runs, hook.failures, hook.dropped) == (2, 0, 0)


def test_failures_are_counted_and_the_next_still_runs(tmp_path: Path) -> None:
    hook = run(f"grep -q good && touch {tmp_path / 'seen'} || {{ echo no >&2; exit 3; }}", "bad", "good")
    assert (hook.runs, hook.failures) == (2, 1)
    assert (tmp_path / "seen").exists()


def test_command_that_reads_nothing_and_shouts_is_no_problem() -> None:
    hook = run("exec 0<&-; head -c 1000000 /dev/zero >&2", "x" * 200_000)
    assert (hook.runs, hook.failures) == (1, 0)


def test_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    hook = run(f"sleep 1000 & echo $! > {file}; wait", "x", timeout_s=0.3)
    assert hook.failures == 1
    deadline = time.monotonic() + 20
    while _lives(int(file.read_text())):
        assert time.monotonic() < deadline


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_no_command_does_nothing_and_the_queue_is_bounded() -> None:
    assert run("", "x").runs == 0

    async def body() -> VerdictHook:
        hook = VerdictHook("true", 20.0)
        for _ in range(QUEUE_LENGTH + 3):
            hook.offer("x")
        dropped = hook.dropped
        await hook.drain(0.0)
        assert dropped == 3
        return hook

    hook = asyncio.run(body())
    assert hook.dropped >= QUEUE_LENGTH
