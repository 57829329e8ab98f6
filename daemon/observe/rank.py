"""One observed rank: its file, its process, and what was last seen to move.

``report`` is the healthy path and runs for every rank in every pass: heartbeat, coordinates and counters,
a few records each, and now and then the calls, for the splits of all_to_all. Once the rank is silent for a
second, or somebody of the job has died, it reads the rest as well: calls, recorder, death notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from scoutd.agent.evidence import Call, GroupView, ProcessStatus, ProcessView, RankReport, Stack
from scoutd.daemon.observe import translate
from scoutd.daemon.observe.oom import OomLedger
from scoutd.daemon.observe.processes import ProcessWatch
from scoutd.daemon.observe.procstat import process_stat
from scoutd.daemon.observe.reader import RankFile

WHOLE_AFTER_NS: Final = 1_000_000_000
STOP_CHECK_NS: Final = 500_000_000
"""A stopped process is silent; its state in /proc is looked at from this silence on."""


class ObservedRank:
    """A rank with a file. ``stack``, with its stamp, is put here by who captures it."""

    def __init__(
        self,
        file: RankFile,
        clock: Callable[[], int],
        oom: OomLedger,
        on_exit: Callable[[], None],
    ) -> None:
        self.file: Final = file
        self.rank: Final = file.header.rank
        self.stack: tuple[Stack, int] | None = None
        self._clock: Final = clock
        self._moved_ns = 0
        self._enqueued: dict[int, int] = {}
        self._topology: tuple[str, dict[str, Any]] = ("", {})
        header = file.header
        self.watch: Final = ProcessWatch(
            header.pid, header.start_ticks, clock, oom, file.lock_holder, on_exit
        )
        own = process_stat(self.watch.pid) if self.watch.visible else None
        self.parent: Final = own.parent if own is not None else 0

    def report(self, now_ns: int, whole: bool) -> RankReport:
        """What is known of the rank now. ``whole``: read every section, whatever the silence.

        Raises OSError or LayoutError where the file can no longer be believed.
        """
        silent = now_ns - self._moved_ns
        # The process first: what a dead rank wrote last is complete only after its death is certain.
        process = self.watch.view(silent > STOP_CHECK_NS)
        self.file.refresh(whole or silent >= WHOLE_AFTER_NS or process.status is ProcessStatus.GONE)
        self._note_movement()
        if not self.file.whole and now_ns - self._moved_ns >= WHOLE_AFTER_NS:
            self.file.refresh(True)
        return self._translate(now_ns, process)

    @property
    def threads(self) -> frozenset[int]:
        """Ids of the threads that publish coordinates."""
        return frozenset(p.thread for p in self.file.progress.records.values() if p.thread)

    @property
    def topology(self) -> dict[str, Any]:
        """The topology record, empty where it is missing or no JSON object."""
        record = self.file.topology.first()
        text = record.text if record is not None else ""
        if text != self._topology[0]:
            self._topology = (text, _object(text))
        return self._topology[1]

    def close(self) -> None:
        self.watch.close()
        self.file.close()

    def _translate(self, now_ns: int, process: ProcessView) -> RankReport:
        file = self.file
        read = translate.public_calls if file.whole else translate.exchanges
        calls = read(file.calls.records.values(), now_ns)
        moved = max([self._moved_ns, *self._call_stamps()]) if file.whole else self._moved_ns
        dump = file.recorder.first() if file.whole else None
        if dump is not None:
            pending = translate.recorder_calls(file.pending.records.values(), dump.dumped_ns, now_ns)
        else:
            pending = []
        dump_age_ns = translate.age(now_ns, dump.dumped_ns) if dump is not None else 0
        merged = translate.merge_calls(calls, pending, dump_age_ns)
        beat = file.heartbeat.first()
        beat_ns = beat.beat_ns if beat is not None and beat.beat_ns else None
        header = file.header
        notes = file.notes.records.values() if file.whole else ()
        return RankReport(
            rank=header.rank,
            pid=self.watch.pid,
            local_rank=header.local_rank,
            device=header.device,
            observed=True,
            process=_dated(process, now_ns, max(moved, beat_ns or 0)),
            coordinates=translate.coordinates(file.progress.records.values(), now_ns),
            heartbeat_age_ns=None if beat_ns is None else translate.age(now_ns, beat_ns),
            silent_ns=translate.age(now_ns, moved or header.attached_ns),
            attached_age_ns=translate.age(now_ns, header.attached_ns),
            calls=merged,
            groups=self._groups(merged, now_ns),
            notes=translate.notes(notes, now_ns),
            stack=_aged(self.stack, moved, now_ns),
            recipes=file.replay.recipes,
            replays=file.replay.results(now_ns),
            replay_cost=file.replay.cost,
        )

    def _groups(self, calls: tuple[Call, ...], now_ns: int) -> tuple[GroupView, ...]:
        """The process groups, with their histories where the whole file was read."""
        file = self.file
        views = translate.groups(file.groups.records, file.counters.records, calls, now_ns)
        return translate.with_histories(views, file.history.records.values()) if file.whole else views

    def _note_movement(self) -> None:
        """``_moved_ns`` is the newest stamp of a coordinate or of a counter that was seen to grow."""
        newest = max((p.entered_ns for p in self.file.progress.records.values()), default=0)
        for slot, counter in self.file.counters.records.items():
            before = self._enqueued.get(slot)
            if before != counter.enqueued:
                self._enqueued[slot] = counter.enqueued
                # The first look does not tell when the counter moved: an agent that starts after a hang
                # must not take the shim's poll for progress.
                if before is not None:
                    newest = max(newest, counter.as_of_ns)
        self._moved_ns = max(self._moved_ns, newest)

    def _call_stamps(self) -> list[int]:
        return [max(c.entered_ns, c.left_ns) for c in self.file.calls.records.values()]


def _dated(process: ProcessView, now_ns: int, last_sign_ns: int) -> ProcessView:
    """A death that nobody witnessed is dated by the rank's last sign of life."""
    if process.status is not ProcessStatus.GONE or process.gone_age_ns is not None or not last_sign_ns:
        return process
    return ProcessView(
        process.status,
        process.exit_code,
        process.signal,
        gone_age_ns=translate.age(now_ns, last_sign_ns),
        oom=process.oom,
    )


def _aged(stack: tuple[Stack, int] | None, moved_ns: int, now_ns: int) -> Stack | None:
    """The stack, unless the rank has moved since it was captured."""
    if stack is None or moved_ns > stack[1]:
        return None
    captured, at_ns = stack
    return Stack(
        captured.frames,
        translate.age(now_ns, at_ns),
        captured.native,
        captured.waits,
        captured.refused,
    )


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
