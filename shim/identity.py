"""Which job and generation this rank belongs to, agreed through the trainer's own store.

Rank 0 chooses and sets one key; the others look whether it is there (``check``), never wait for it: a
blocking call on the store's connection would hold its mutex against the trainer. After ``FALLBACK_S``
without the key (rank 0 has no shim) each rank computes the same values by itself.

job = a readable run id + "-" + a nonce. The nonce hashes the run tag of ``scoutd run`` and the launcher
(boot, parent process), so that a restart by the same launcher is the same job and two jobs of one user
differ. Outside of torchelastic one shell may start several jobs, so the rendezvous port is mixed in.
generation = 1 + the highest that this node has seen of the job.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch.distributed.distributed_c10d as c10d

from scoutd.shim.shmfile import GENERATION_FILE, RETRIES, VANISHED, start_ticks
from scoutd.shim.store import LET_GO_S, ORIGINAL_GET

KEY: Final = "identity"
FALLBACK_S: Final = 30.0
_UUID: Final = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-")
LAST_LOOK_S: Final = 0.5
PACES: Final = ((0.5, 0.01), (3.0, 0.05), (FALLBACK_S, 0.5))
"""Up to an age of the search (s): the pause between two looks. Usually rank 0 is a few ms away."""


class Identity(NamedTuple):
    job: str
    generation: int


def job_name() -> str:
    """The job as this process would name it."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "")
    if run_id in ("", "none"):
        run_id = Path(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "job").stem
    if _UUID.match(run_id):
        run_id = run_id[:8]
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "_", run_id)[:24].strip("._-") or "job"
    return f"{readable}-{_nonce()}"


def _nonce() -> str:
    parts = [os.environ.get("SCOUTD_RUN", ""), launcher_id()]
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        parts.append(os.environ.get("MASTER_PORT", ""))
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


def launcher_id() -> str:
    """The parent process for ever: boot, pid, start time."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        boot = "unknown"
    parent = os.getppid()
    return f"{boot}:{parent}:{start_ticks(parent)}"


def highest_generation(folder: Path) -> int:
    """The highest generation of the job that left a trace on this node, 0 if there is none."""
    highest = 0
    try:
        names = os.listdir(folder)
    except OSError:
        return 0
    for name in names:
        if name.isdecimal():
            highest = max(highest, int(name))
        elif name == GENERATION_FILE:
            text = (folder / name).read_text().strip()
            highest = max(highest, int(text) if text.isdecimal() else 0)
    return highest


def claim(user_folder: Path) -> Identity:
    """A new generation of this job, whose folder exists from now on."""
    job = job_name()
    folder = user_folder / job
    for _ in range(RETRIES):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            generation = highest_generation(folder) + 1
            (folder / str(generation)).mkdir(mode=0o700)
        except VANISHED:  # another launcher was quicker, or the agent removed an empty folder
            continue
        return Identity(job, generation)
    raise FileExistsError(f"no free generation under {folder}")


def join_locally(user_folder: Path, rank: int) -> Identity:
    """Without rank 0's word: the newest generation that has no file of this rank, else a new one."""
    job = job_name()
    newest = highest_generation(user_folder / job)
    folder = user_folder / job / str(newest)
    if newest and folder.is_dir() and not (folder / f"rank-{rank}").exists():
        return Identity(job, newest)
    return claim(user_folder)


class Agreement:
    """Finds the identity without ever blocking the trainer; ``found`` is called once, with it."""

    def __init__(self, store: Any, rank: int, user_folder: Path, found: Callable[[Identity], None]) -> None:
        self._store = None if store is None else c10d.PrefixStore("scoutd/", store)
        self._rank: Final = rank
        self._user_folder: Final = user_folder
        self._found: Final = found
        self.known = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Rank 0 has told everybody; another rank has looked once and goes on looking on a thread of its
        own, because the trainer may hold the store's connection for minutes."""
        if self._rank == 0:
            identity = claim(self._user_folder)
            if self._store is not None:
                self._store.set(KEY, json.dumps(identity))
            self._tell(identity)
            return
        seen = self._look()
        if seen is not None:
            self._tell(seen)
            return
        self._thread = threading.Thread(target=self._keep_looking, name="scoutd-identity", daemon=True)
        self._thread.start()

    def stop(self, most_s: float = 1.0) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(most_s)

    def let_go(self) -> None:
        """The trainer gives its store up: the identity is known by now, and the store is held no more."""
        self.stop(LET_GO_S)
        if not self.known:
            self.conclude()
        self._store = None

    def _look(self) -> Identity | None:
        store = self._store
        if store is None or not store.check([KEY]):
            return None
        job, generation = json.loads(ORIGINAL_GET(store, KEY))
        return Identity(str(job), int(generation))

    def _keep_looking(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(_pause(time.monotonic() - began)):
            identity = self._safe_look()
            if identity is None and time.monotonic() - began > FALLBACK_S:
                identity = join_locally(self._user_folder, self._rank)
            if identity is not None:
                self._tell(identity)
                return

    def conclude(self) -> None:
        """The identity is known, by a last look or by this rank's own reckoning: the process ends, and what
        it leaves must be found under the job's name."""
        deadline = time.monotonic() + LAST_LOOK_S
        identity = None
        while not self.known and identity is None and time.monotonic() < deadline:
            identity = self._safe_look()
            time.sleep(0.01)
        if not self.known:
            self._tell(identity or join_locally(self._user_folder, self._rank))

    def _tell(self, identity: Identity) -> None:
        self.known = True
        self._found(identity)

    def _safe_look(self) -> Identity | None:
        try:
            return self._look()
        except (RuntimeError, ValueError, OSError):
            return None


def _pause(age_s: float) -> float:
    return next((pause for until, pause in PACES if age_s < until), PACES[-1][1])
