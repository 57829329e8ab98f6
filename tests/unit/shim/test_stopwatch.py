"""A replay's own time: waiting for a processor is not in it, sleeping and working are."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from scoutd.shim.replay import stopwatch
from scoutd.shim.replay.stopwatch import Stopwatch, run_delay_ns

CPU = torch.device("cpu")


def test_sleep_counts() -> None:
    watch = Stopwatch(CPU)
    time.sleep(0.02)
    assert watch.stop() > 10_000_000


def test_waiting_for_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter((5_000_000_000, 5_000_000_000 + 10**12))
    monkeypatch.setattr(stopwatch, "run_delay_ns", lambda: next(delays))
    watch = Stopwatch(CPU)
    assert watch.stop() == 1


def test_without_the_kernels_count_it_is_plain_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "SCHEDSTAT", "/proc/no-such-file")
    monkeypatch.setattr(stopwatch, "_open", {})
    assert run_delay_ns() == 0
    assert Stopwatch(CPU).stop() >= 1


def test_each_thread_has_its_own_count_and_few_files_are_open() -> None:
    for _ in range(2 * stopwatch.MOST_OPEN):
        thread = threading.Thread(target=run_delay_ns)
        thread.start()
        thread.join()
    assert len(stopwatch._open) <= stopwatch.MOST_OPEN
