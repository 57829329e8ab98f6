"""analyze, bundle and doctor on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scoutd.daemon.cli import checks
from scoutd.daemon.cli.app import run_app
from scoutd.daemon.config import AgentSection, Config, ObserveSection
from scoutd.proto.v1 import query_pb2 as query
from tests.unit.daemon_analyze.megatron import Cluster

from .conftest import FakeAgent

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    cluster = Cluster(2, 2, 2)
    cluster.hang(3, 4)
    return cluster.run().write(tmp_path / "dumps")


def test_analyze_prints_one_verdict(dumps: Path, capsys: Capture) -> None:
    assert run_app(["analyze", str(dumps), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert [i["rank"] for i in verdict["implicated"]] == [3]
    assert verdict["cause"] == "RANK_STALLED"
    assert verdict["state"] == "CONFIRMED"
    assert verdict["confirmed_at"].startswith("2023-11-14T22:13:20")


def test_analyze_for_people_names_what_it_could_not_use(dumps: Path, capsys: Capture) -> None:
    (dumps / "_dump_7").write_bytes(b"")
    assert run_app(["analyze", str(dumps)]) == 0
    output = capsys.readouterr()
    assert "rank 3" in output.out
    assert output.err == "scoutd: _dump_7: the file is empty\n"


@pytest.mark.parametrize("name", ["nothing-here", "."])
def test_analyze_without_files_is_one_line_and_code_2(tmp_path: Path, capsys: Capture, name: str) -> None:
    assert run_app(["analyze", str(tmp_path / name)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1


def test_bundle_writes_a_private_file(node_agent: FakeAgent, capsys: Capture, tmp_path: Path) -> None:
    node_agent.bundle = query.GetBundleResponse(id="0a1b2c3d4e5f", archive=b"archive")
    file = tmp_path / "b.tar.gz"
    assert run_app(["bundle", "0a1b", "-o", str(file)]) == 0
    assert file.read_bytes() == b"archive"
    assert file.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out.strip() == str(file)


def test_bundle_names_its_file_by_the_verdict(
    node_agent: FakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    node_agent.bundle = query.GetBundleResponse(id="0a1b2c3d4e5f", archive=b"archive")
    assert run_app(["bundle", "0a1b"]) == 0
    assert (tmp_path / "scoutd-0a1b2c3d4e5f.tar.gz").exists()


def test_bundle_that_cannot_be_written(node_agent: FakeAgent, capsys: Capture, tmp_path: Path) -> None:
    assert run_app(["bundle", "0a1b", "-o", str(tmp_path / "no" / "b")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_doctor_without_an_agent_checks_the_machine(place: Path, capsys: Capture) -> None:
    assert run_app(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {check["name"] for check in told["checks"]} >= {
        "shared memory",
        "pidfd",
        "py-spy",
        "may read stacks",
    }
    assert told["agent"].startswith("no agent is running here")
    assert told["jobs"] == []


def test_doctor_with_an_agent_that_was_named_and_is_not_there(place: Path, capsys: Capture) -> None:
    assert run_app(["doctor", "--address", f"unix:{place}/none.sock"]) == 2
    assert "no agent answers" in capsys.readouterr().err


def test_doctor_suggests_limits(node_agent: FakeAgent, capsys: Capture) -> None:
    limit = query.PhaseLimit(
        setting="stall.checkpoint_s",
        phases=["CHECKPOINT"],
        limit_s=600,
        longest_s=41.5,
        ended=3,
        suggested_s=125,
    )
    node_agent.limits.jobs.add(job="run7", generation=1, suppressed=2, confirmed=0, limits=[limit])
    assert run_app(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "held back: 2" in out
    assert "stall.checkpoint_s" in out
    assert "125 s" in out
    assert "max(5 s, 3 × longest silence" in out


def test_checks_find_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.setattr(checks, "LEAST_FREE_BYTES", 1 << 60)
    config = Config(agent=AgentSection(port=0, http_port=0), observe=ObserveSection(root=str(tmp_path / "x")))
    found = {check.name: check for check in checks.checks(config)}
    assert not found["shared memory"].ok
    assert "SCOUTD_ROOT" in found["shared memory"].remedy
    assert not found["pidfd"].ok
    assert found["gRPC port"].ok
