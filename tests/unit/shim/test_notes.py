from __future__ import annotations

import subprocess
import sys

from scoutd.proto import shm
from scoutd.shim import notes
from scoutd.shim.guard import Guard
from scoutd.shim.intercept import Undo
from scoutd.shim.shmfile import ShmFile
from tests.unit.shim.reading import slots


def caught(action: object) -> BaseException:
    try:
        action()  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001  any
        return error
    raise AssertionError("did not raise")


def test_a_note_names_type_first_line_and_place() -> None:
    def users() -> None:
        raise ValueError("odd batch\nsecond line")

    error = caught(users)
    note = notes.describe(type(error), error, error.__traceback__, shm.NoteSource.EXCEPTION)
    assert (note.kind, note.message) == ("ValueError", "odd batch")
    assert note.location.endswith("in users")
    assert "test_notes.py:" in note.location
    assert note.user_location == note.location


def test_the_users_line_is_found_below_library_frames() -> None:
    def users() -> None:
        subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=True)

    error = caught(users)
    note = notes.describe(type(error), error, error.__traceback__, shm.NoteSource.EXCEPTION)
    assert note.kind == "subprocess.CalledProcessError"
    assert "subprocess.py" in note.location
    assert note.user_location.endswith("in users")


def test_hooks_chain_and_go_and_only_the_first_notes_stay(file: ShmFile) -> None:
    seen: list[str] = []
    before, sys.excepthook = sys.excepthook, lambda kind, error, trace: seen.append(str(error))
    mine = sys.excepthook
    undo = Undo()
    try:
        notes.DeathNotes(file, Guard(), lambda: None).install(undo)
        for number in range(shm.NOTES.slots + 2):
            sys.excepthook(ValueError, ValueError(str(number)), None)
        undo.run()
        assert sys.excepthook is mine
    finally:
        sys.excepthook = before
    assert seen == [str(number) for number in range(shm.NOTES.slots + 2)]
    assert [note.message for note in slots(file.path, shm.NOTES)] == ["0", "1", "2", "3"]
