"""What survives a restart, in SQLite (WAL): verdicts, the incarnation of a node, the generation of a job.

All access after the opening happens on one thread of its own, through a bounded queue, so that a slow or hung
file system never stops the main loop; what does not fit in the queue is dropped and counted. A failure turns
the store off for good: ``failure`` says why, the agent goes on in memory and its status shows it.

Several agents of one user may share a file; WAL and short transactions make that safe.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scoutd.daemon.errors import LocalError

FILE_NAME: Final = "scoutd.sqlite3"
SCHEMA_VERSION: Final = 1
MAX_QUEUED: Final = 256
KEPT_VERDICTS: Final = 10_000
BUSY_TIMEOUT_S: Final = 1.0

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS verdicts (
  id TEXT PRIMARY KEY, job TEXT NOT NULL, generation INTEGER NOT NULL, run TEXT NOT NULL,
  state TEXT NOT NULL, message BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS incarnations (node TEXT PRIMARY KEY, incarnation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS generations (job TEXT PRIMARY KEY, generation INTEGER NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A verdict's newest state as it is kept: ``message`` is its wire form, opaque here."""

    id: str
    job: str
    generation: int
    run: str
    state: str
    message: bytes


class Store:
    """An open state file. ``failure`` is empty while it works."""

    def __init__(self, directory: Path) -> None:
        """Opens or makes the file.

        Raises:
            LocalError: the directory cannot be written, or the file is not ours to read.
        """
        self.failure = ""
        self.dropped = 0
        self._room: Final = threading.Semaphore(MAX_QUEUED)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db: Final = _open(directory / FILE_NAME)
        except (OSError, sqlite3.Error) as error:
            raise LocalError(f"state directory {directory}: {_reason(error)}") from error
        self._thread: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scoutd-store")

    def next_incarnation(self, node: str) -> int:
        """One more than any earlier incarnation of this node's agent; 1 for the first."""
        (value,) = self._db.execute(
            "INSERT INTO incarnations VALUES (?, 1) ON CONFLICT(node) "
            "DO UPDATE SET incarnation = incarnation + 1 RETURNING incarnation",
            (node,),
        ).fetchone()
        self._db.commit()
        return int(value)

    def load(self, limit: int) -> list[Entry]:
        """The newest verdicts, oldest first, without those that an earlier agent left open: nobody
        confirmed them, and if they still hold they are found again."""
        self._db.execute("DELETE FROM verdicts WHERE state = 'OPEN'")
        rows = self._db.execute(
            "SELECT id, job, generation, run, state, message FROM verdicts ORDER BY rowid DESC LIMIT ?",
            (limit,),
        ).fetchall()
        self._db.commit()
        return [Entry(*row) for row in reversed(rows)]

    def generation(self, job: str) -> int:
        """The highest generation recorded for a job, 0 for an unknown one."""
        row = self._db.execute("SELECT generation FROM generations WHERE job = ?", (job,)).fetchone()
        return int(row[0]) if row else 0

    def put(self, entry: Entry) -> None:
        """The entry replaces any earlier state of the same verdict, soon."""
        row = (entry.id, entry.job, entry.generation, entry.run, entry.state, entry.message)
        self._submit(
            lambda: self._write(
                "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(id) "
                "DO UPDATE SET run = excluded.run, state = excluded.state, message = excluded.message",
                row,
            )
        )

    def put_generation(self, job: str, generation: int) -> None:
        """The job's recorded generation is at least this one, soon."""
        self._submit(
            lambda: self._write(
                "INSERT INTO generations VALUES (?, ?) ON CONFLICT(job) "
                "DO UPDATE SET generation = max(generation, excluded.generation)",
                (job, generation),
            )
        )

    def close(self) -> None:
        """Everything queued is written, and the file is closed."""
        self._thread.shutdown(wait=True)
        with contextlib.suppress(sqlite3.Error):
            self._trim()
        with contextlib.suppress(sqlite3.Error):
            self._db.close()

    def _submit(self, work: Callable[[], None]) -> None:
        if self.failure or not self._room.acquire(blocking=False):
            self.dropped += 1
        else:
            self._thread.submit(self._run, work)

    def _run(self, work: Callable[[], None]) -> None:
        """On the store's thread: a database error ends the store, not the agent."""
        try:
            work()
        except sqlite3.Error as error:
            self.failure = _reason(error)
        finally:
            self._room.release()

    def _write(self, statement: str, row: tuple[object, ...]) -> None:
        self._db.execute(statement, row)
        self._db.commit()

    def _trim(self) -> None:
        self._write(
            "DELETE FROM verdicts WHERE rowid <= (SELECT max(rowid) FROM verdicts) - ?", (KEPT_VERDICTS,)
        )


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (0, SCHEMA_VERSION):
        db.close()
        raise sqlite3.DatabaseError(f"{path.name} has schema {version}, this build writes {SCHEMA_VERSION}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.executescript(SCHEMA)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.commit()
    return db


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
