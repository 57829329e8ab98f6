"""The publisher thread: heartbeat, group counters, works, recorder.

A daemon thread beats twice a second, ten times once the trainer's coordinates have been silent for a
second. A heartbeat that stops while the process lives says that the GIL is held or the process stopped, so
nothing on this thread may wait for anything but its own clock: no store, no lock of the trainer's, no
collective. The recorder is dumped only during silence, and rarely enough that dumps take at most a
twentieth of the time.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from scoutd.proto import shm
from scoutd.shim import recorder
from scoutd.shim.calls import Calls
from scoutd.shim.coordinates import Coordinates
from scoutd.shim.groups import Groups, GroupState
from scoutd.shim.guard import Guard
from scoutd.shim.shmfile import ShmFile
from scoutd.shim.works import Works

BEAT_S: Final = 0.5
SILENT_BEAT_S: Final = 0.1
SILENT_AFTER_NS: Final = 1_000_000_000
POLL_NS: Final = 1_000_000_000
DUMP_SHARE: Final = 20


class Publisher:
    """The thread and what it polls. ``beat`` is one turn of it."""

    def __init__(
        self,
        file: ShmFile,
        coordinates: Coordinates,
        groups: Groups,
        calls: Calls,
        works: Works,
        guard: Guard,
    ) -> None:
        self._file: Final = file
        self._calls: Final = calls
        self._coordinates: Final = coordinates
        self._groups: Final = groups
        self._works: Final = works
        self._guard: Final = guard
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._beats = 0
        self._ordinal = -1
        self._moved_ns = time.monotonic_ns()
        self._polled_ns = 0
        self._dump_due_ns = 0
        self._dumped_ns = 0
        self._pending = 0
        self._blind = recorder.is_blind()
        self._closed = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="scoutd-publisher", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        """The thread has ended, or did not within the timeout."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            silent = self._guard.run("publisher", lambda: self.beat(time.monotonic_ns()), False)
            self._stop.wait(SILENT_BEAT_S if silent else BEAT_S)

    def beat(self, now_ns: int) -> bool:
        """One turn at ``now_ns``; returns whether the trainer is silent."""
        ordinal = self._coordinates.last_ordinal
        if ordinal != self._ordinal:
            self._ordinal = ordinal
            self._moved_ns = now_ns
        silent = now_ns - self._moved_ns >= SILENT_AFTER_NS
        if not silent and self._pending and not self._closed:
            self._dumped_ns, self._pending = now_ns, 0  # what the last dump said is over
            self._guard.run("recorder", lambda: self._recorder_state(now_ns), None)
        self._heartbeat(now_ns)
        self._guard.run("works", self._works.poll, None)
        if silent or now_ns - self._polled_ns >= POLL_NS:
            self._polled_ns = now_ns
            self._guard.run("counters", self._poll_counters, None)
            if silent and not self._blind and not self._closed and now_ns >= self._dump_due_ns:
                self._guard.run("recorder", self._dump, None)
            self._guard.run("recorder", lambda: self._recorder_state(now_ns), None)
        return silent

    def _heartbeat(self, now_ns: int) -> None:
        self._beats += 1
        record = shm.Heartbeat(
            beat_ns=now_ns,
            beats=self._beats,
            errors=self._guard.errors,
            cost_ns=self._coordinates.cost_ns,
            boundaries=self._coordinates.last_ordinal,
            dropped=self._file.dropped,
            disabled=self._guard.disabled,
        )
        self._file.publish(shm.HEARTBEAT, 0, record)

    def _poll_counters(self) -> None:
        self._groups.sweep()
        for state in self._groups.all():
            self._groups.write_counters(state, state.enqueued())

    def _dump(self) -> None:
        started = time.monotonic_ns()
        entries = recorder.dump()
        took = time.monotonic_ns() - started
        self._dumped_ns = started
        self._dump_due_ns = started + max(POLL_NS, DUMP_SHARE * took)
        self._publish_entries(entries, started)

    def last_look(self) -> None:
        """A collective of this process has failed: the newest one that was recorded is the one it was in.

        The recorder counts it as over, and no public call has shown it (DDP's reducer). What is published now
        stays. Where a public call has failed, that tells all, and the newest that was recorded may be done.
        """
        if self._blind or self._closed or self._calls.failed:
            return
        self._closed = True
        entries = recorder.dump()
        if entries:
            entries[-1] = entries[-1]._replace(retired=False)
        self._dumped_ns = time.monotonic_ns()
        self._publish_entries(entries, self._dumped_ns)
        self._recorder_state(self._dumped_ns)

    def _publish_entries(self, entries: list[recorder.Entry], dumped_ns: int) -> None:
        states = {state.name: state for state in self._groups.all()}
        entries = [in_our_count(entry, states.get(entry.group_name)) for entry in entries]
        enqueued = {name: state.enqueued() for name, state in states.items()}
        entries = recorder.of_living_groups(entries, enqueued)
        for name, retired in recorder.retired_by_group(entries).items():
            self._groups.set_retired(states[name], retired)
        for entry in entries:
            state = states[entry.group_name]
            if entry.sequence > state.highest - shm.HISTORY_DEPTH:
                self._calls.recall(state, entry.sequence, entry.subject)
        unfinished = [entry for entry in entries if not entry.retired]
        self._pending = len(unfinished)
        for slot, entry in enumerate(unfinished[: shm.PENDING.slots]):
            record = shm.Pending(
                dump_ns=dumped_ns,
                group=states[entry.group_name].group,
                sequence=entry.sequence,
                created_ns=max(0, dumped_ns - entry.created_age_ns),
                numel=entry.numel,
                operation=entry.operation,
                dtype=entry.dtype,
                shape=entry.shape,
            )
            self._file.publish(shm.PENDING, slot, record)

    def _recorder_state(self, now_ns: int) -> None:
        record = shm.RecorderState(now_ns, self._dumped_ns, self._pending, int(self._blind))
        self._file.publish(shm.RECORDER, 0, record)


def in_our_count(entry: recorder.Entry, state: GroupState | None) -> recorder.Entry:
    """The entry with its sequence among collectives alone: the recorder counts monitored barriers, too.

    A group's P2P count can only be too small (calls that went past the public functions): the backend's
    own counter, which the entry tells as well, corrects it.
    """
    if state is None or not state.counts_p2p:
        return entry
    raw = entry.sequence + entry.offset
    sequence = entry.sequence - recorder.MONITORED_BARRIER_COUNTS * state.barriers_before(raw)
    if raw <= state.raw() and not state.frozen:
        state.p2p = max(state.p2p, raw - sequence)
    return entry._replace(sequence=sequence)
