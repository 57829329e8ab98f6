from __future__ import annotations

from pathlib import Path

import pytest

from scoutd.shim import identity


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "SCOUTD_RUN", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(identity, "launcher_id", lambda: "boot:1:2")
    monkeypatch.setattr(identity.sys, "argv", ["/home/me/train.py"])


@pytest.mark.parametrize(
    ("run_id", "readable"),
    [
        ("", "train"),
        ("none", "train"),
        ("llama 7b/a", "llama_7b_a"),
        ("3f2a90c1-1111-2222-3333-444444444444", "3f2a90c1"),
        ("x" * 80, "x" * 24),
        ("../../etc", "etc"),
    ],
)
def test_the_name_is_readable_and_a_single_path_component(
    run_id: str, readable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", run_id)
    name, _, nonce = identity.job_name().rpartition("-")
    assert name == readable
    assert len(nonce) == 8


def test_a_restart_by_the_same_launcher_is_the_same_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("MASTER_PORT", "1000")
    first = identity.job_name()
    monkeypatch.setenv("MASTER_PORT", "2000")  # torchelastic may choose another one
    assert identity.job_name() == first


@pytest.mark.parametrize("variable", ["SCOUTD_RUN", "MASTER_PORT"])
def test_two_jobs_of_one_launcher_differ(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = identity.job_name()
    monkeypatch.setenv(variable, "other")
    assert identity.job_name() != first


def test_jobs_of_two_launchers_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    first = identity.job_name()
    monkeypatch.setattr(identity, "launcher_id", lambda: "boot:3:4")
    assert identity.job_name() != first


def test_generations_count_on_from_folders_and_the_kept_number(tmp_path: Path) -> None:
    job, first = identity.claim(tmp_path)
    assert (first, identity.claim(tmp_path).generation) == (1, 2)
    (tmp_path / job / ".generation").write_text("7\n")
    assert identity.claim(tmp_path).generation == 8


def test_without_rank_0_the_others_of_a_node_meet_in_one_generation(tmp_path: Path) -> None:
    first = identity.join_locally(tmp_path, 1)
    (tmp_path / first.job / str(first.generation) / "rank-1").touch()
    assert identity.join_locally(tmp_path, 2) == first
    assert identity.join_locally(tmp_path, 1).generation == first.generation + 1, "a restart of rank 1"
