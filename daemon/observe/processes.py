"""Is a rank's process running, stopped or gone, and how did it end?

A pidfd becomes readable the moment the process is dead, for processes that are not our children too. It is
registered with the running event loop; on readiness the status is read at once, before the parent reaps it,
which also gives the order of deaths. Without a loop, and in every pass besides, it is polled. Where the pid
means nothing here (another PID namespace) the lock on the shared-memory file speaks instead: held means
running, free means gone. A pid is believed only with the start time that its header names.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from typing import Final

from scoutd.agent.evidence import ProcessStatus, ProcessView
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.procstat import decode_exit, exit_status_of, process_stat, same_process

RUNNING: Final = ProcessView(ProcessStatus.RUNNING)
UNKNOWN: Final = ProcessView(ProcessStatus.UNKNOWN)


class ProcessWatch:
    """One process from now until its death; what is known of a death is kept for ever.

    ``lock_holder`` asks the rank file's lock and may be absent (a process without a shim).
    ``on_exit`` is called from the event loop when the process has died.
    """

    def __init__(
        self,
        pid: int,
        start_ticks: int,
        clock: Callable[[], int],
        oom: OomLedger,
        lock_holder: Callable[[], int | None] | None = None,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        self.start_ticks: Final = start_ticks
        self._clock: Final = clock
        self._oom: Final = oom
        self._lock_holder: Final = lock_holder
        self._on_exit: Final = on_exit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pidfd = -1
        self._gone: tuple[int | None, int | None, int | None, bool | None] | None = None
        self._seen_alive = False
        self._stopped_ns: int | None = None
        self.pid: Final = self._resolve(pid)
        self._counter: Final = oom.watch(self.pid) if self._pidfd >= 0 else ""

    @property
    def visible(self) -> bool:
        """The pid names the process here, so /proc and signals may be used with it."""
        return self._pidfd >= 0

    @property
    def gone(self) -> bool:
        return self._gone is not None

    def view(self, silent: bool) -> ProcessView:
        """The process now. ``silent``: the rank shows no progress, so a stop is looked for, too.

        ``gone_age_ns`` is None where the process was dead before this watch began.
        """
        if self._gone is None:
            self._look()
        if self._gone is not None:
            at, code, number, oom = self._gone
            age = None if at is None else max(0, self._clock() - at)
            return ProcessView(ProcessStatus.GONE, code, number, gone_age_ns=age, oom=oom)
        self._seen_alive = True
        if self._pidfd < 0:
            return RUNNING if self._lock_holder is not None else UNKNOWN
        return self._running_or_stopped() if silent or self._stopped_ns is not None else RUNNING

    def close(self) -> None:
        """Nothing is watched any more; the last known state stays."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._pidfd)
        self._loop = None
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _resolve(self, pid: int) -> int:
        """The pid as this namespace sees it; the lock's holder names it where the header's does not."""
        if self._open(pid):
            return pid
        holder = self._lock_holder() if self._lock_holder is not None else None
        if holder is not None and holder > 0 and holder != pid and self._open(holder):
            return holder
        return pid

    def _open(self, pid: int) -> bool:
        if not same_process(pid, self.start_ticks):
            return False
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        if not same_process(pid, self.start_ticks):
            os.close(self._pidfd)
            self._pidfd = -1
            return False
        self._register()
        return True

    def _register(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._loop.add_reader(self._pidfd, self._readable)

    def _readable(self) -> None:
        if self._gone is None:
            self._bury()
            if self._on_exit is not None:
                self._on_exit()

    def _look(self) -> None:
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if poll.poll(0):
                self._bury()
        elif self._lock_holder is None or self._lock_holder() is None:
            self._gone = (self._clock() if self._seen_alive else None, None, None, None)

    def _bury(self) -> None:
        at = self._clock()
        code, number = decode_exit(exit_status_of(self._pidfd, self.pid, self.start_ticks))
        oom = self._oom.claim(self._counter) if number == signal.SIGKILL else None
        self._gone = (at, code, number, oom)
        self.close()

    def _running_or_stopped(self) -> ProcessView:
        found = process_stat(self.pid)
        if found is not None and found.state == "T":
            now = self._clock()
            if self._stopped_ns is None:
                self._stopped_ns = now
            return ProcessView(ProcessStatus.STOPPED, stopped_age_ns=max(0, now - self._stopped_ns))
        # State t is a tracer's stop (a stack capture): it says nothing about the rank.
        if found is None or found.state != "t":
            self._stopped_ns = None
        return RUNNING
