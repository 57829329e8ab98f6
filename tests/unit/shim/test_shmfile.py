from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from scoutd.proto import shm
from scoutd.shim import shmfile
from scoutd.shim.shmfile import ShmFile
from tests.unit.shim.reading import slot


def test_a_new_file_is_private_and_pending(file: ShmFile) -> None:
    found = file.path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_size == shm.FILE_SIZE
    assert found.st_blocks * 512 >= shm.FILE_SIZE, "blocks must be allocated before mapping"
    assert file.path.parent.name == ".pending"
    assert stat.S_IMODE(file.path.parent.parent.stat().st_mode) == 0o700
    assert file.path.name == f"{os.getpid()}-{shmfile.start_ticks()}"
    shm.check_prefix(file.path.read_bytes())


def test_settling_moves_the_file_and_removes_the_pending_folder(file: ShmFile) -> None:
    user = file.user_folder
    file.settle("job-1", 3, 7)
    assert file.path == user / "job-1" / "3" / "rank-7"
    assert not (user / ".pending").exists()


def test_settling_replaces_the_file_of_an_earlier_process(file: ShmFile) -> None:
    target = file.user_folder / "job-1" / "3" / "rank-7"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"old")
    file.settle("job-1", 3, 7)
    shm.check_prefix(target.read_bytes())


def test_removing_takes_empty_folders_along(tmp_path: Path) -> None:
    file = ShmFile(tmp_path / "scoutd")
    file.settle("job-1", 1, 0)
    (file.path.parent.parent / ".generation").write_text("1")
    file.remove()
    file.close()
    assert not (tmp_path / "scoutd").exists()


def test_removing_leaves_other_ranks_and_generations(tmp_path: Path) -> None:
    file = ShmFile(tmp_path / "scoutd")
    file.settle("job-1", 2, 0)
    other = file.user_folder / "job-1" / "1" / "rank-0"
    other.parent.mkdir()
    other.write_bytes(b"")
    file.remove()
    file.close()
    assert other.exists()
    assert not (file.user_folder / "job-1" / "2").exists()


def test_an_observer_counts_while_it_has_looked_lately(
    file: ShmFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not file.observed
    monkeypatch.setattr(shmfile.time, "monotonic_ns", lambda: 100_000_000_000)
    file.publish(shm.COMMAND, 0, shm.Command(1, 95_000_000_000, 1))
    assert file.observed
    file.publish(shm.COMMAND, 0, shm.Command(1, 85_000_000_000, 1))
    assert not file.observed


def test_writing_after_close_goes_nowhere_and_does_no_harm(tmp_path: Path) -> None:
    file = ShmFile(tmp_path / "scoutd")
    file.close()
    file.publish(shm.TOPOLOGY, 0, shm.Topology("late"))
    assert slot(file.path, shm.TOPOLOGY) is None
    file.close()


def test_a_link_in_the_place_of_the_users_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "scoutd"
    root.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / str(os.getuid())).symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        ShmFile(root)


def test_without_space_there_is_an_error_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shmfile.os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        ShmFile(tmp_path / "scoutd")
    assert list((tmp_path / "scoutd").rglob("*-*")) == []


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other ranks settle at the same time and remove the empty pending folder under our feet."""
    real = os.mkdir
    left = {".pending": 3, "1": 3}

    def there_and_gone(path: str, mode: int = 0o777) -> None:
        name = os.path.basename(path)
        if left.get(name, 0):
            left[name] -= 1
            raise FileExistsError(path)
        real(path, mode)

    monkeypatch.setattr(os, "mkdir", there_and_gone)
    made = ShmFile(tmp_path / "root")
    made.settle("job", 1, 0)
    assert made.path.name == "rank-0"
    assert made.path.exists()
    assert left == {".pending": 0, "1": 0}
    made.close()
