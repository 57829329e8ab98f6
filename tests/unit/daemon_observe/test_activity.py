"""Activity from samples, and real samples of a child."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from scoutd.daemon.observe.activity import Sample, descendants, moving, summarize, take_sample
from tests.unit.daemon_observe.conftest import S

Spawn = Callable[..., "subprocess.Popen[str]"]


def samples(cpu_ns: list[int], io_bytes: list[int]) -> list[Sample]:
    return [Sample(k * S // 4, c, b) for k, (c, b) in enumerate(zip(cpu_ns, io_bytes, strict=True))]


def test_less_than_a_second_says_nothing() -> None:
    assert summarize([], None) is None
    assert summarize(samples([0, 9, 9, 9], [0] * 4), None) is None


def test_steady_growth_is_a_rate() -> None:
    steps = range(9)
    found = summarize(samples([k * S // 8 for k in steps], [k * 1000 for k in steps]), True)
    assert found is not None
    assert (found.window_ns, found.cpu_ratio, found.io_bytes_per_s) == (2 * S, 0.5, 4000.0)
    assert found.stack_moving is True


def test_a_burst_is_no_activity() -> None:
    found = summarize(samples([0] * 4 + [S] * 5, [0] * 8 + [1 << 20]), None)
    assert found is not None
    assert (found.cpu_ratio, found.io_bytes_per_s) == (0.0, 0.0)


def test_a_childs_end_is_no_negative_time() -> None:
    found = summarize(samples([8 * S, S, 2 * S, 3 * S, 4 * S], [0] * 5), None)
    assert found is not None
    assert found.cpu_ratio == 3.0


def test_a_stack_moves_if_half_of_its_steps_do() -> None:
    assert moving([1, 2]) is None
    assert moving([1, 1, 1, 1]) is False
    assert moving([1, 2, 2]) is True
    assert moving([1, 1, 1, 2]) is False


BUSY = """
import os, sys, threading, time
def spin():
    while True: pass
if sys.argv[1] == "thread":
    threading.Thread(target=spin, daemon=True).start()
elif os.fork() == 0:
    spin()
print("up", flush=True)
time.sleep(600)
"""


def grown_until(pid: int, enough_ns: int) -> bool:
    """The rank's counted CPU time grew by so much within the time that the process used itself."""
    before = take_sample(pid, frozenset(), 0)
    deadline = time.monotonic() + 20
    start = process_cpu(pid)
    while time.monotonic() < deadline and process_cpu(pid) - start < 0.3:
        if take_sample(pid, frozenset(), 0).cpu_ns - before.cpu_ns >= enough_ns:
            return True
    return take_sample(pid, frozenset(), 0).cpu_ns - before.cpu_ns >= enough_ns


def process_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_child_process_counts(spawn: Spawn) -> None:
    child = spawn(BUSY, "fork")
    (grandchild,) = descendants(child.pid)
    try:
        assert grown_until(child.pid, S // 20)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_a_thread_that_publishes_nothing_does_not_count(spawn: Spawn) -> None:
    child = spawn(BUSY, "thread")
    assert not grown_until(child.pid, S // 10)


def test_reading_counts_as_io(spawn: Spawn) -> None:
    child = spawn("import os\nprint('up', flush=True)\nwhile True: os.read(os.open('/dev/zero', 0), 4096)")
    before = take_sample(child.pid, frozenset(), 0).io_bytes
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if take_sample(child.pid, frozenset(), 0).io_bytes > before:
            return
    raise AssertionError("no I/O was seen")
