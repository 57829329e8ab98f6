"""Training with the shim is bit for bit training without it: results, graphs, warnings.

Two ranks train every case of ``harmless.py`` twice, once plain and once with the injection on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
INJECT = HERE.parents[1] / "shim" / "inject"
CASES = (
    "ddp",
    "ddp-checkpoint",
    "ddp-reentrant",
    "ddp-scaler",
    "fsdp2",
    "compiled-ddp",
    "compiled-full",
    "compiled-collective",
)
WORLD = 2


def run(folder: Path, shim: bool) -> list[dict[str, Any]]:
    """Every rank's results."""
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SCOUTD_ROOT": str(folder / "scoutd")}
    environment.pop("PYTHONPATH", None)
    if shim:
        environment["PYTHONPATH"] = str(INJECT)
        environment |= {"SCOUTD_REPLAY_EVERY": "1", "SCOUTD_REPLAY_VARIANTS": "64"}
    command = [sys.executable, str(HERE / "harmless.py"), ",".join(CASES)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(WORLD), str(folder / "store"), str(folder / str(rank))],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        for process in ranks:
            output, _ = process.communicate(timeout=150)
            assert process.returncode == 0, output
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return [json.loads((folder / str(rank)).read_text()) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("harmless")
    return run(folder / "plain", shim=False), run(folder / "shim", shim=True)


Both = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", CASES)
def test_training_is_bit_for_bit_the_same(both: Both, case: str) -> None:
    plain, observed = both
    for rank in range(WORLD):
        assert observed[rank][case] == plain[rank][case]
        assert plain[rank][case]["losses"]


def test_the_shim_was_there_and_no_part_of_it_failed(both: Both) -> None:
    plain, observed = both
    for rank in range(WORLD):
        assert plain[rank]["attached"] == {}
        assert observed[rank]["attached"]["attached"] is True
        assert observed[rank]["attached"]["errors"] == {}
        assert observed[rank]["attached"]["file"].endswith(f"/rank-{rank}")
