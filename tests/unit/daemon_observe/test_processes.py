"""Real children that stop and die: what a watch says of them."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Callable

import pytest

from scoutd.agent.evidence import ProcessStatus
from scoutd.daemon.observe import oom, processes
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.processes import ProcessWatch
from scoutd.daemon.observe.procstat import decode_exit, process_stat
from scoutd.proto import shm
from tests.unit.daemon_observe.conftest import Clock, S, World
from tests.unit.daemon_observe.writer import HEADER, start_ticks

Spawn = Callable[..., "subprocess.Popen[str]"]
WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
print('up', flush=True)
sys.stdin.read()
"""


def watch(pid: int, clock: Clock, **options: Callable[[], None]) -> ProcessWatch:
    return ProcessWatch(pid, start_ticks(pid), clock, OomLedger(), **options)


def until_dead(pid: int) -> None:
    """Returns once the process is a zombie; it stays one, because nobody waits for it here."""
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(10_000)
    os.close(fd)


def test_a_killed_child_is_gone_with_its_signal(spawn: Spawn, clock: Clock) -> None:
    child = spawn(WAIT, stdin=subprocess.PIPE)
    found = watch(child.pid, clock)
    assert found.view(silent=True).status is ProcessStatus.RUNNING
    os.kill(child.pid, signal.SIGKILL)
    until_dead(child.pid)
    view = found.view(silent=False)
    assert (view.status, view.exit_code, view.signal) == (ProcessStatus.GONE, None, signal.SIGKILL)
    clock.advance(3)
    assert found.view(silent=False).gone_age_ns == 3 * S


def test_an_exit_code_survives_the_reaping_where_the_kernel_keeps_it(spawn: Spawn, clock: Clock) -> None:
    child = spawn("import sys; print('up', flush=True); sys.stdin.read(); sys.exit(7)", stdin=subprocess.PIPE)
    found = watch(child.pid, clock)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait() == 7
    view = found.view(silent=False)
    assert view.status is ProcessStatus.GONE
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    assert view.exit_code == (7 if release >= (6, 15) else None)


def test_a_stopped_child_is_stopped_and_goes_on(spawn: Spawn, clock: Clock) -> None:
    child = spawn(WAIT, stdin=subprocess.PIPE)
    found = watch(child.pid, clock)
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert found.view(silent=False).status is ProcessStatus.RUNNING
    assert found.view(silent=True).stopped_age_ns == 0
    clock.advance(2)
    view = found.view(silent=True)
    assert (view.status, view.stopped_age_ns) == (ProcessStatus.STOPPED, 2 * S)
    os.kill(child.pid, signal.SIGCONT)
    os.waitpid(child.pid, os.WCONTINUED)
    assert found.view(silent=False).status is ProcessStatus.RUNNING


def test_a_tracers_stop_is_no_stop(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    found = watch(os.getpid(), clock)
    real = process_stat(os.getpid())
    assert real is not None
    traced = type(real)("t", *list(vars(real).values())[1:])
    monkeypatch.setattr(processes, "process_stat", lambda pid: traced)
    assert found.view(silent=True).status is ProcessStatus.RUNNING


def test_a_reused_pid_is_not_the_process(clock: Clock) -> None:
    found = ProcessWatch(os.getpid(), start_ticks(os.getpid()) - 1, clock, OomLedger())
    view = found.view(silent=False)
    assert (view.status, view.exit_code, view.gone_age_ns) == (ProcessStatus.GONE, None, None)
    assert not found.visible


def test_a_held_lock_speaks_for_a_process_of_another_namespace(clock: Clock) -> None:
    holder: list[int | None] = [0]
    found = ProcessWatch(1, 1, clock, OomLedger(), lambda: holder[0])
    assert found.view(silent=True).status is ProcessStatus.RUNNING
    holder[0] = None
    view = found.view(silent=False)
    assert (view.status, view.gone_age_ns) == (ProcessStatus.GONE, 0)


def test_the_locks_holder_names_the_pid_that_the_header_does_not(
    spawn: Spawn, world: World, clock: Clock
) -> None:
    writer = world.rank(0)
    child = spawn(LOCK, str(writer.path), stdin=subprocess.PIPE)
    header = HEADER._replace(pid=1, start_ticks=start_ticks(child.pid), uid=world.uid)
    writer.put(shm.HEADER, header)
    (observation,) = world.observer().observe()
    assert observation.report.ranks[0].pid == child.pid


def test_exits_reach_the_loop_in_their_order(spawn: Spawn, clock: Clock) -> None:
    async def scenario() -> None:
        children = [spawn(WAIT, stdin=subprocess.PIPE) for _ in range(3)]
        heard = asyncio.Event()
        watches = [watch(child.pid, clock, on_exit=heard.set) for child in children]
        for k in (2, 0, 1):
            clock.advance(0.001)
            os.kill(children[k].pid, signal.SIGKILL)
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
        ages = [w.view(silent=False).gone_age_ns or 0 for w in watches]
        assert ages[2] > ages[0] > ages[1]

    asyncio.run(scenario())


def test_the_status_of_wait_is_decoded() -> None:
    assert decode_exit(None) == (None, None)
    assert decode_exit(0) == (0, None)
    assert decode_exit(3 << 8) == (3, None)
    assert decode_exit(9) == (None, 9)
    assert decode_exit(6 | 0x80) == (None, 6)


def test_one_kill_for_memory_explains_one_death(monkeypatch: pytest.MonkeyPatch) -> None:
    count = [4]
    monkeypatch.setattr(oom, "_counter_paths", lambda text: ["events"])
    monkeypatch.setattr(oom, "_kills", lambda path: count[0])
    ledger = OomLedger()
    path = ledger.watch(os.getpid())
    assert ledger.claim(path) is None
    count[0] = 5
    assert ledger.claim(path) is True
    assert ledger.claim(path) is None
    assert ledger.claim("") is None
