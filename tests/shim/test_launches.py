"""The shim attaches in the process that trains, however it came to life, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scoutd.proto import shm
from tests.unit.shim.reading import slots

HERE = Path(__file__).parent
INJECT = HERE.parents[1] / "shim" / "inject"


def alone(folder: Path) -> str:
    """Source of a job of one rank."""
    store = f"dist.FileStore({str(folder / 's')!r}, 1)"
    return f"dist.init_process_group('gloo', store={store}, rank=0, world_size=1)\n"


def environment(folder: Path, *paths: Path) -> dict[str, str]:
    found = {**os.environ, "OMP_NUM_THREADS": "1", "SCOUTD_ROOT": str(folder / "scoutd")}
    found["PYTHONPATH"] = os.pathsep.join(map(str, (INJECT, *paths, HERE.parents[1])))
    return found


def python(folder: Path, *args: object, paths: tuple[Path, ...] = ()) -> str:
    """Output of a Python process below the injection, which must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        env=environment(folder, *paths),
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def launched(folder: Path, way: str) -> dict[str, Any]:
    """What each rank reported, by file name; nothing of the job is left in shared memory."""
    python(folder, HERE / "launched.py", way, folder)
    assert not (folder / "scoutd").exists(), list((folder / "scoutd").rglob("*"))
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_every_rank_gets_a_shim_of_its_own(tmp_path: Path, way: str) -> None:
    found = launched(tmp_path, way)
    ranks = [found[f"rank-{rank}"] for rank in range(2)]
    assert [rank["attached"] for rank in ranks] == [True, True]
    assert [rank["errors"] for rank in ranks] == [{}, {}]
    assert len({rank["pid"] for rank in ranks}) == 2
    assert len({rank["file"] for rank in ranks}) == 2
    if way == "fork":
        assert found["parent"] == {"shim": False}, "the parent never trained"


@pytest.mark.parametrize("way", ["workers-fork", "workers-spawn"])
def test_dataloader_workers_are_not_observed(tmp_path: Path, way: str) -> None:
    rank = launched(tmp_path, way)["rank-0"]
    assert rank["attached"] is True
    assert rank["workers"] == [0, 0, 0, 0]


def test_a_forked_child_leaves_no_trace_in_its_parents_file(tmp_path: Path) -> None:
    launched(tmp_path, "fork-after")
    records = slots(tmp_path / "copy", shm.PROGRESS)
    assert [record.operation for record in records] == ["after all_reduce"]


def test_a_hidden_sitecustomize_runs_and_keeps_its_name(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("MINE = 5\n")
    assert python(tmp_path, "-c", "import sitecustomize; print(sitecustomize.MINE)", paths=(other,)) == "5\n"


def test_the_injection_imports_neither_torch_nor_scoutd(tmp_path: Path) -> None:
    code = "import sys; print([m for m in ('torch', 'scoutd.shim', 'typing') if m in sys.modules])"
    assert "torch" not in python(tmp_path, "-c", code)
    assert "scoutd.shim" not in python(tmp_path, "-c", code)


def test_a_python_without_scoutd_loads_the_shim_from_beside_the_injection(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.abc\n"
        "class No(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'scoutd': raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "import torch.distributed as dist\n" + alone(tmp_path) + "import scoutd.shim\n"
        "print(scoutd.shim.status()['attached'], scoutd.shim.__file__)\n"
        "dist.destroy_process_group()\n"
    )
    attached, file = python(tmp_path, "-c", code).split()
    assert attached == "True"
    assert Path(file).resolve() == (HERE.parents[1] / "shim" / "__init__.py").resolve()


def test_who_has_destroyed_the_default_group_is_leaving_until_its_process_ends(tmp_path: Path) -> None:
    """A launcher may end it without the interpreter's exit, and nobody may see how."""
    code = (
        "import os, torch.distributed as dist\n" + alone(tmp_path) + "import scoutd.shim\n"
        "group = dist.new_group([0])\n"
        "dist.destroy_process_group(group)\n"
        "print(scoutd.shim.status()['file'], flush=True)\n"
        "import shutil; shutil.copy(scoutd.shim.status()['file'], 'before')\n"
        "dist.destroy_process_group()\n"
        "os._exit(0)\n"
    )
    file = python(tmp_path, "-c", f"import os; os.chdir({str(tmp_path)!r})\n" + code).strip()
    phases = [
        record.phase
        for path in (tmp_path / "before", Path(file))
        if (record := shm.read(path.read_bytes(), 0, shm.PROGRESS, 0)) is not None
    ]
    assert phases == [shm.Phase.BETWEEN, shm.Phase.EXITING]


def test_the_module_runner_passes_arguments_and_arms(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch.distributed as dist\n" + alone(tmp_path) + "import scoutd.shim\n"
        "print(__name__, sys.argv[1:], scoutd.shim.status()['attached'])\n"
    )
    found = {**environment(tmp_path)}
    del found["PYTHONPATH"]
    done = subprocess.run(
        [sys.executable, "-m", "scoutd.shim", str(script), "--lr", "3"],
        env=found,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "__main__ ['--lr', '3'] True"


def test_an_exception_leaves_the_file_with_its_note(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        + alone(tmp_path)
        + "def fail():\n    raise ValueError('odd batch')\n"
        "fail()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment(tmp_path),
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "[rank0]: ValueError: odd batch" in done.stderr, "torch's own hook still speaks"
    (path,) = (tmp_path / "scoutd").rglob("rank-0")
    (note,) = slots(path, shm.NOTES)
    assert (note.kind, note.message) == ("ValueError", "odd batch")
    assert note.user_location == f"{script}:4 in fail"


@pytest.mark.parametrize("way", ["fail-fork", "fail-spawn"])
def test_a_child_of_multiprocessing_leaves_a_note_too(tmp_path: Path, way: str) -> None:
    python(tmp_path, HERE / "launched.py", way, tmp_path)
    (path,) = (tmp_path / "scoutd").rglob("rank-1")
    (note,) = slots(path, shm.NOTES)
    assert (note.kind, note.message) == ("ValueError", "odd batch")
    assert note.user_location.endswith("in fail")


@pytest.mark.parametrize("way", ["talk", "talk-default"])
def test_p2p_is_counted_by_peer_and_tag_and_does_not_disturb_collectives(tmp_path: Path, way: str) -> None:
    found = launched(tmp_path, way)
    calls = [found[f"rank-{rank}"]["calls"] for rank in range(2)]

    def p2p(rank: int, kind: int) -> list[tuple[int, int, int]]:
        return [(c["peer"], c["tag"], c["sequence"]) for c in calls[rank] if c["kind"] == kind]

    assert p2p(0, shm.CallKind.P2P_SEND) == [(1, 0, 1), (1, 0, 2), (1, 3, 1), (1, 5, 1)]
    assert p2p(1, shm.CallKind.P2P_RECV) == [(0, 0, 1), (0, 0, 2), (0, 3, 1), (0, 5, 1)]
    sequences = [
        [(c["operation"], c["sequence"]) for c in of_rank if c["operation"] == "all_reduce"]
        for of_rank in calls
    ]
    assert sequences[0] == sequences[1]
    assert [sequence for _, sequence in sequences[0]] == [1, 2, 3]
    states = {c["state"] for of_rank in calls for c in of_rank}
    assert states == {shm.CallState.DONE}
    pairs = [{c["fingerprint"] for c in of_rank if c["tag"] == 3} for of_rank in calls]
    assert pairs[0] == pairs[1], "sender and receiver agree on what is sent"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_filesystem_gives_a_trainer_without_shim_and_a_reason(tmp_path: Path) -> None:
    small = tmp_path / "scoutd"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    code = (
        "import torch, torch.distributed as dist\n" + alone(tmp_path) + "dist.all_reduce(torch.ones(2))\n"
        "import scoutd.shim\n"
        "print(scoutd.shim.status())\n"
        "dist.destroy_process_group()\n"  # Gloo's thread may else drop a tensor while the interpreter leaves
    )
    try:
        said = python(tmp_path, "-c", code)
        assert list(small.rglob("*-*")) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert "'attached': False" in said
    assert "No space left on device" in said
