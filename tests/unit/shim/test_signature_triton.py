"""The CUDA kernel, without a GPU: interpreted it computes what it must, and it compiles."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from scoutd.shim import signature_lanes

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and platform.machine() != "x86_64",
    reason="there is no Triton for this machine; where there is, it must be installed",
)


def run(program: str, cache: Path) -> Any:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(HERE / program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_interpreted(tmp_path: Path) -> None:
    found = run("interpreted.py", tmp_path)
    assert len(found) == 13
    for what, kernel, plain, dumb in found:
        assert kernel == plain == dumb, what
    assert len({kernel for _, kernel, _, _ in found}) == len(found)


def test_compiles(tmp_path: Path) -> None:
    found = run("compiled.py", tmp_path)
    assert set(found) == {"sm_80 i32", "sm_90 i64"}
    assert all(sizes["ptx"] and sizes["cubin"] for sizes in found.values())


def test_pieces_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(1000, 77)
    whole = signature_lanes.lanes_digest(values)
    monkeypatch.setattr(signature_lanes, "_AT_ONCE", 1 << 9)
    assert signature_lanes.lanes_digest(values) == whole
    monkeypatch.setattr(signature_lanes, "pieces", lambda tensor: signature_bytes_pieces(tensor, 1003))
    columns = values.t().contiguous().t()
    assert signature_lanes.lanes_digest(columns) == whole
    odd = torch.cat((torch.zeros(5, dtype=torch.uint8), values.view(torch.uint8).reshape(-1)))[5:]
    assert signature_lanes.lanes_digest(odd) == whole


def signature_bytes_pieces(tensor: torch.Tensor, limit: int) -> Any:
    from scoutd.shim.signature_bytes import pieces

    return pieces(tensor, limit)


def test_without_triton_plain_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "scoutd.shim.signature_triton", raising=False)
    signature_lanes._triton.cache_clear()
    try:
        assert signature_lanes._lane_sum_for("cuda") is signature_lanes.plain_lane_sum
    finally:
        signature_lanes._triton.cache_clear()
