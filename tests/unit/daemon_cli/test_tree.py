from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from scoutd.daemon.cli import tree

IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
ORPHAN = """
import os, signal, subprocess, sys
other = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
                         start_new_session=True)
print(other.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def start(code: str, tag: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "SCOUTD_RUN": tag}
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def tag() -> Iterator[str]:
    tag = f"test-{os.getpid()}-{time.monotonic_ns()}"
    yield tag
    asyncio.run(tree.kill(tag, 0))


def test_a_process_that_ignores_sigterm_is_killed(tag: str) -> None:
    with start(IGNORES, tag) as process:
        asyncio.run(tree.end(tag, process.pid, grace_s=0.1))
        assert process.wait(5) == -signal.SIGKILL


def test_a_stopped_process_ends_by_sigterm(tag: str) -> None:
    with start("import signal; print(flush=True); signal.pause()", tag) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        asyncio.run(tree.end(tag, process.pid, grace_s=5.0))
        assert process.wait(5) == -signal.SIGTERM


def test_an_orphan_in_a_session_of_its_own_is_found(tag: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, env={**os.environ, "SCOUTD_RUN": tag}
    )
    output = process.stdout
    assert output is not None
    orphan = psutil.Process(int(output.readline().split()[0]))
    process.wait(5)
    assert orphan in tree.members(tag, process.pid)
    asyncio.run(tree.end(tag, process.pid, grace_s=5.0))
    assert not tree.is_alive(orphan)
    output.close()


def test_others_are_not_members(tag: str) -> None:
    with start("import signal; print(flush=True); signal.pause()", tag + "0") as other:
        assert psutil.Process(other.pid) not in tree.members(tag, (1 << 22) + 1)
        other.kill()
