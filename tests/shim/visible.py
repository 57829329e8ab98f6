"""What shared memory says of ranks that wait: runs ways of ``waiting.py``, prints one JSON object a line.

``python visible.py FOLDER NAME ...``: each way is a job of four forked ranks, attached; some jobs run at a
time. Once the present ranks have been silent long enough for the recorder to be looked at, the parent
reads their files as the agent does and ends them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

import scoutd.shim
from scoutd.agent.evidence import Call
from scoutd.daemon.observe import translate
from scoutd.proto import shm
from tests.shim import waiting
from tests.unit.shim.reading import slots

AT_A_TIME: Final = 4
SILENT_NS: Final = 1_200_000_000
DEADLINE_S: Final = 150.0


class Job:
    """Four ranks in one way of waiting."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.folder.mkdir()
        self.began = time.monotonic()
        self.pids = [self._fork(rank) for rank in range(waiting.WORLD)]

    def _fork(self, rank: int) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                self._be(rank)
            except Exception:  # noqa: BLE001  the parent reads it
                (self.folder / f"error-{rank}").write_text(traceback.format_exc())
            finally:
                os._exit(1)
        return pid

    def _be(self, rank: int) -> None:
        log = os.open(self.folder / f"log-{rank}", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(waiting.ENVIRONMENT[self.name], SCOUTD_ROOT=str(self.folder / "root"))
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(waiting.WORLD), SCOUTD_TEST_FOLDER=str(self.folder))
        dist.set_debug_level_from_env()
        torch.set_num_threads(1)
        store = dist.FileStore(str(self.folder / "store"), waiting.WORLD)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=waiting.WORLD)
        assert scoutd.shim.attach(), scoutd.shim.status()
        waiting.prelude(rank)
        act = waiting.WAYS[self.name](rank)
        dist.barrier()
        (self.folder / f"ready-{rank}").touch()
        if rank != waiting.LATE:
            act()
            (self.folder / f"passed-{rank}").touch()
        time.sleep(1_000_000)

    def file(self, rank: int) -> Path | None:
        return next((self.folder / "root").rglob(f"rank-{rank}"), None)

    def settled(self) -> bool:
        """All have come, and the recorder was looked at since the last thing that moved."""
        if time.monotonic() - self.began > DEADLINE_S or list(self.folder.glob("error-*")):
            return True
        if len(list(self.folder.glob("ready-*"))) < waiting.WORLD:
            return False
        return all(_settled(self.file(rank)) for rank in range(waiting.WORLD))

    def end(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def seen(self) -> dict[str, Any]:
        errors = {path.name: path.read_text() for path in self.folder.glob("error-*")}
        ranks = {rank: rank_seen(path) for rank in range(waiting.WORLD) if (path := self.file(rank))}
        passed = [rank for rank in range(waiting.WORLD) if (self.folder / f"passed-{rank}").exists()]
        return {"way": self.name, "errors": errors, "passed": passed, "ranks": ranks}


def _settled(path: Path | None) -> bool:
    if path is None:
        return False
    now = time.monotonic_ns()
    moved = max((p.entered_ns for p in slots(path, shm.PROGRESS)), default=now)
    state = slots(path, shm.RECORDER)
    looked = state[0].dumped_ns > moved + SILENT_NS // 2 or state[0].blind if state else False
    return now - moved > SILENT_NS and bool(looked)


def rank_seen(path: Path) -> dict[str, Any]:
    """Pending calls, coordinates and counters, as the agent reads them."""
    now = time.monotonic_ns()
    states = slots(path, shm.RECORDER)
    public = translate.public_calls(slots(path, shm.CALLS), now)
    dumped_ns = states[0].dumped_ns if states else 0
    recorded = translate.recorder_calls(slots(path, shm.PENDING), dumped_ns, now)
    merged = translate.merge_calls(public, recorded, now - dumped_ns)
    calls = [c for c in merged if c.state.value != "DONE"]
    identities = {g.group: g for g in slots(path, shm.GROUPS) if not g.destroyed}
    counters = [c for c in slots(path, shm.COUNTERS) if c.group in identities]
    progress = max(slots(path, shm.PROGRESS), key=lambda p: p.entered_ns)
    beats = slots(path, shm.HEARTBEAT)
    return {
        "calls": [_call(c, identities) for c in calls],
        "coordinate": [shm.Phase(progress.phase).name, progress.operation, bool(progress.waiting)],
        "enqueued": {identities[c.group].name: c.enqueued for c in counters},
        "disabled": beats[0].disabled if beats else "",
        "errors": beats[0].errors if beats else 0,
    }


def _call(call: Call, identities: dict[int, shm.Group]) -> dict[str, Any]:
    group = identities.get(call.group)
    return {
        "operation": call.fingerprint.operation,
        "dtype": call.fingerprint.dtype,
        "numel": call.fingerprint.numel,
        "argument": call.fingerprint.argument,
        "shape": call.shape,
        "group": group.name if group else "",
        "size": group.size if group else 0,
        "sequence": call.sequence,
        "kind": call.kind.value,
        "state": call.state.value,
        "waiting": call.waiting,
        "source": call.source.value,
        "peer": call.peer,
    }


def run(folder: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    left = list(enumerate(names))
    running: list[Job] = []
    while left or running:
        while left and len(running) < AT_A_TIME:
            number, name = left.pop(0)
            running.append(Job(name, folder / str(number)))
        for job in [job for job in running if job.settled()]:
            running.remove(job)
            yield job.seen()
            job.end()
        time.sleep(0.05)


if __name__ == "__main__":
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.distributed.optim

    chosen = sys.argv[2:] or list(waiting.WAYS)
    for found in run(Path(sys.argv[1]), chosen):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
