"""Whatever a rank waits in for another, shared memory says so: which operation, group and sequence.

Every way of ``waiting.py`` runs once, as a job of four ranks of which rank 2 never comes; the table below
is what must be seen then, and it is the table of docs/visibility.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.shim.waiting import LATE, WAYS, WORLD

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "visibility.md"
SOURCES = {
    "call": "the call itself, before it is made",
    "recorder": "the Flight Recorder, after a second of silence",
}


@dataclass(frozen=True)
class Seen:
    """``waits``: the record says that the host is inside (else a stack must). ``ranks``: those that wait.
    ``together``: all of them wait at one sequence."""

    operation: str
    source: str = "call"
    waits: bool = True
    ranks: tuple[int, ...] = (0, 1, 3)
    group: str = "0"
    together: bool = True
    argument: str | None = field(default=None)


def recorded(operation: str, **more: Any) -> Seen:
    return Seen(operation, "recorder", waits=False, **more)


EXPECTED: dict[str, Seen] = {
    "all_reduce": Seen("all_reduce", argument="SUM"),
    "all_reduce async, waited for": Seen("all_reduce", argument="SUM"),
    "all_reduce async, not waited for": Seen("all_reduce", waits=False),
    "all_reduce async, work dropped": Seen("all_reduce", waits=False),
    "all_reduce of a subgroup": Seen("all_reduce", ranks=(0, 1)),
    "all_reduce, DEBUG=INFO": Seen("all_reduce"),
    "all_reduce, DEBUG=DETAIL": Seen("all_reduce"),
    "broadcast": Seen("broadcast", argument="root=2"),
    "reduce": Seen("reduce", argument="SUM root=0"),
    "all_gather": Seen("all_gather"),
    "all_gather_into_tensor": Seen("all_gather_into_tensor"),
    "gather": Seen("gather", ranks=(0,)),
    "scatter": Seen("scatter", argument="root=2"),
    "reduce_scatter": Seen("reduce_scatter"),
    "reduce_scatter_tensor": Seen("reduce_scatter_tensor"),
    "all_to_all": Seen("all_to_all"),
    "all_to_all_single": Seen("all_to_all_single"),
    "all_to_all_single, splits": Seen("all_to_all_single"),
    "barrier": Seen("barrier"),
    "monitored_barrier": Seen("monitored_barrier"),
    "all_gather_object": Seen("all_gather"),
    "gather_object": Seen("all_gather"),
    "broadcast_object_list": Seen("broadcast"),
    "scatter_object_list": Seen("broadcast"),
    "send": Seen("send"),
    "recv": Seen("recv"),
    "isend": Seen("isend"),
    "irecv": Seen("irecv"),
    "batch_isend_irecv": Seen("irecv", ranks=(3,)),
    "recv_object_list": Seen("recv"),
    "coalesced all_reduce": Seen("all_reduce_coalesced"),
    "coalesced all_gather_into_tensor": Seen("all_gather_into_tensor_coalesced"),
    "coalesced, asynchronous": Seen("all_reduce_coalesced"),
    "functional all_reduce": Seen("all_reduce", argument="SUM"),
    "functional all_gather_tensor": Seen("all_gather_into_tensor"),
    "functional reduce_scatter_tensor": Seen("reduce_scatter_tensor"),
    "functional all_to_all_single": Seen("all_to_all_single"),
    "DTensor redistribute": Seen("all_gather_into_tensor"),
    "DTensor full_tensor": Seen("all_gather_into_tensor"),
    "distribute_tensor": Seen("scatter", ranks=(0,)),
    "tensor parallel forward": Seen("all_reduce"),
    "new_group": Seen("new_group", group="new_group", argument="ranks=0,1,2,3"),
    "init_device_mesh": Seen("new_group", group="new_group", together=False),
    "store.get": Seen("store get", group=""),
    "DDP()": recorded("all_gather"),
    "DDP forward (buffers)": recorded("broadcast", together=False),
    "DDP backward": recorded("all_reduce"),
    "DDP backward, DEBUG=INFO": recorded("all_reduce"),
    "FSDP1 forward": Seen("all_gather"),
    "FSDP2 forward": Seen("all_gather_into_tensor"),
    "FSDP2 backward": Seen("all_gather_into_tensor"),
    "HSDP forward": Seen("all_gather_into_tensor", ranks=(3,), group="*"),
    "HSDP backward": Seen("all_gather_into_tensor", ranks=(3,), group="*"),
    "compiled all_reduce": recorded("all_reduce"),
    "compiled module": recorded("all_reduce"),
    "compiled DDP backward": recorded("all_reduce"),
    "ZeroRedundancyOptimizer step": Seen("broadcast", together=False),
    "distributed checkpoint": Seen("all_gather"),
}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What was seen of every way."""
    folder = tmp_path_factory.mktemp("visible")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.shim.visible", str(folder)],
        env=environment,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return {line["way"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_every_way_is_expected() -> None:
    assert set(EXPECTED) == set(WAYS)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_wait_is_visible(observed: dict[str, dict[str, Any]], name: str) -> None:
    found, expected = observed[name], EXPECTED[name]
    assert found["errors"] == {}
    sequences = set()
    for rank in expected.ranks:
        said = found["ranks"][str(rank)]
        calls = [c for c in said["calls"] if c["operation"] == expected.operation and c["state"] == "PENDING"]
        assert calls, (rank, said)
        call = calls[0]
        assert call["source"] == {"call": "PUBLIC", "recorder": "RECORDER"}[expected.source], (rank, call)
        assert any(c["waiting"] for c in calls) is expected.waits, (rank, calls)
        assert expected.group in ("*", call["group"]), (rank, call)
        assert expected.argument in (None, call["argument"]), (rank, call)
        assert (said["disabled"], said["errors"]) == ("", 0), (rank, said)
        if call["kind"] == "COLLECTIVE":
            sequences.add(call["sequence"])
            assert _late(found, call["group"]) < call["sequence"], (rank, call)
        elif call["kind"] != "STORE":
            assert call["peer"] == LATE, (rank, call)
    assert not expected.together or len(sequences) < 2, sequences


def _late(found: dict[str, Any], group: str) -> int:
    """How far the rank that never comes has come in the group."""
    return int(found["ranks"][str(LATE)]["enqueued"].get(group, 0))


@pytest.mark.parametrize("name", EXPECTED)
def test_who_did_not_come_is_one_behind(observed: dict[str, dict[str, Any]], name: str) -> None:
    """P2P calls and monitored barriers came before: counters of all ranks agree nevertheless."""
    found, expected = observed[name], EXPECTED[name]
    pending = [
        call
        for rank in range(WORLD)
        for call in found["ranks"][str(rank)]["calls"]
        if call["kind"] == "COLLECTIVE" and call["state"] == "PENDING" and call["group"] == "0"
    ]
    if pending and expected.together:
        assert min(call["sequence"] for call in pending) == _late(found, "0") + 1


def test_nobody_passed_who_should_wait(observed: dict[str, dict[str, Any]]) -> None:
    passed = {name: set(found["passed"]) & set(EXPECTED[name].ranks) for name, found in observed.items()}
    assert {name: ranks for name, ranks in passed.items() if ranks} == {}


def table() -> str:
    """The table of docs/visibility.md."""
    lines = ["| a rank waits in | seen as | source | host known to wait |", "|---|---|---|---|"]
    for name, seen in EXPECTED.items():
        waits = "yes" if seen.waits else "from its stack"
        lines.append(f"| {name} | `{seen.operation}` | {seen.source} | {waits} |")
    return "\n".join(lines)


def test_the_document_has_this_table() -> None:
    assert table() in DOCUMENT.read_text(), f"docs/visibility.md should hold:\n{table()}"
