"""The committed protobuf code is what the pinned compiler makes of the .proto files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PROTOS = sorted((REPOSITORY / "proto" / "v1").glob("*.proto"))


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    names = [f"scoutd/proto/v1/{proto.name}" for proto in PROTOS]
    outputs = [f"--{kind}={tmp_path}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-Iscoutd/proto={REPOSITORY / 'proto'}"]
    subprocess.run([*command, *outputs, *names], check=True, cwd=tmp_path)
    fresh = {file.name: file.read_bytes() for file in (tmp_path / "scoutd" / "proto" / "v1").iterdir()}
    committed = {file.name: file.read_bytes() for file in (REPOSITORY / "proto" / "v1").glob("*_pb2*.py*")}
    assert len(PROTOS) == 4
    assert len(fresh) == 3 * len(PROTOS)
    assert committed == fresh, "run `make proto` and commit the result"
