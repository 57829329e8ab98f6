"""Death notes: the exception that ended the process or a thread, written before anything else reacts.

Both of Python's hooks are chained: ours writes the note, then calls what was there (torch's own hook
prefixes the rank). ``location`` is where it was raised, ``user_location`` the innermost frame of the
user's own code.
"""

from __future__ import annotations

import site
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from scoutd.proto import shm
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Undo
from scoutd.shim.shmfile import ShmFile


def _library_folders() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    if hasattr(site, "getsitepackages"):
        paths.update(site.getsitepackages())
    if __package__:
        paths.add(__file__.rpartition("/")[0])
    return tuple(sorted(path for path in paths if path))


LIBRARIES: Final = _library_folders()
TRANSPORT: Final = ("gloo/", "nccl", "connection closed", "connection reset")


def describe(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, source: int
) -> shm.Note:
    """The note for an exception: its type, first line and places."""
    message = (str(error).strip().splitlines() or [""])[0] if error is not None else ""
    innermost, user = _locations(trace)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else (f"{kind.__module__}.{kind.__qualname__}")
    )
    return shm.Note(
        at_ns=time.monotonic_ns(),
        thread=threading.get_native_id(),
        source=source,
        kind=name,
        message=message,
        location=innermost,
        user_location=user,
    )


def of_transport(error: BaseException) -> bool:
    """The exception is a collective's own: its backend raised it."""
    message = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in message for word in TRANSPORT)


def _locations(trace: TracebackType | None) -> tuple[str, str]:
    innermost = user = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
        innermost = place
        if _is_users(code.co_filename):
            user = place
        trace = trace.tb_next
    return innermost, user


def _is_users(filename: str) -> bool:
    return not filename.startswith(("<frozen", "<string")) and not any(
        filename.startswith(folder + "/") for folder in LIBRARIES
    )


class DeathNotes:
    """Writes notes, at most as many as there are slots: the first ones say the most."""

    def __init__(self, file: ShmFile, guard: Guard, collective_failed: Callable[[], None]) -> None:
        self._file: Final = file
        self._guard: Final = guard
        self._collective_failed: Final = collective_failed
        self.written = 0
        self.fatal = False

    def write(self, note: shm.Note) -> None:
        """The note is published, unless all slots hold earlier ones."""
        if self.written < shm.NOTES.slots:
            self._file.publish(shm.NOTES, self.written, note)
            self.written += 1

    def record(self, error: BaseException) -> None:
        """The exception that ends the process is published."""
        if self._guard.part("notes").on:
            self.fatal = True
            source = shm.NoteSource.EXCEPTION
            self._guard.run(
                "notes", lambda: self.write(describe(type(error), error, error.__traceback__, source)), None
            )
            if self._guard.run("notes", lambda: of_transport(error), False):
                self._guard.run("recorder", self._collective_failed, None)

    def install(self, undo: Undo) -> None:
        """Both exception hooks write a note first."""
        part = self._guard.part("notes")
        before, threads_before = sys.excepthook, threading.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
            self.record(error)
            return before(kind, error, trace)

        def thread_hook(args: threading.ExceptHookArgs) -> Any:
            if part.on and args.exc_type is not SystemExit:
                kind, error, trace = args.exc_type, args.exc_value, args.exc_traceback
                self._guard.run(
                    "notes", lambda: self.write(describe(kind, error, trace, shm.NoteSource.THREAD)), None
                )
            return threads_before(args)

        def restore() -> None:
            if sys.excepthook is hook:
                sys.excepthook = before
            if threading.excepthook is thread_hook:
                threading.excepthook = threads_before

        sys.excepthook = hook
        threading.excepthook = thread_hook
        undo.add(restore)
