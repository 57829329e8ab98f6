"""How long a replay took, without the time in which the machine had no processor for it.

On the host a rank shares processors with other ranks, loaders and agents. A thread that is ready to run and
has to wait takes longer by no fault of its own, and on a full machine much longer: the kernel counts that
wait (``run_delay``, second field of ``schedstat``), and it is taken off. Sleeping and computing slowly are
not waits of this kind. Where the kernel does not tell, and on devices, it is the plain time.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Final

import torch

from scoutd.shim.replay.ambience import synchronize

SCHEDSTAT: Final = "/proc/thread-self/schedstat"
_open: dict[tuple[int, int], int] = {}
"""(pid, thread) → descriptor of that thread's file: opening it costs more than a small module."""

MOST_OPEN: Final = 4


class Stopwatch:
    """Runs from its construction on; what was launched on the device before does not count."""

    def __init__(self, device: torch.device) -> None:
        self._device: Final = device
        synchronize(device)
        self._delayed_ns: Final = run_delay_ns() if device.type == "cpu" else 0
        self._began_ns: Final = time.perf_counter_ns()

    def stop(self) -> int:
        """Nanoseconds, at least 1, once the device has done what was launched since."""
        synchronize(self._device)
        took_ns = time.perf_counter_ns() - self._began_ns
        delayed_ns = run_delay_ns() - self._delayed_ns if self._device.type == "cpu" else 0
        return max(1, took_ns - max(0, delayed_ns))


def run_delay_ns() -> int:
    """How long this thread has waited for a processor since it began; 0 where the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(os.pread(_descriptor(), 96, 0).split()[1])
    return 0


def _descriptor() -> int:
    key = (os.getpid(), threading.get_ident())
    found = _open.get(key)
    if found is None:
        while len(_open) >= MOST_OPEN:
            _, old = _open.popitem()
            os.close(old)
        found = _open[key] = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    return found
