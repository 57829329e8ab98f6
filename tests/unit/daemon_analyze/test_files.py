"""Names, formats and damage of dump files."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest

from scoutd.agent.verdict import State, Status
from scoutd.daemon.analyze import analyze_dumps
from scoutd.daemon.analyze.dump import Unreadable, parse
from scoutd.daemon.analyze.files import candidates, host_of, read
from scoutd.daemon.analyze.membership import names_by_key, reconstruct
from scoutd.daemon.errors import ConfigError
from tests.unit.daemon_analyze.megatron import Cluster


def hung() -> Cluster:
    """Rank 5 of 16 hangs before the fourth call of its step."""
    cluster = Cluster(2, 2, 4)
    cluster.hang(5, 4)
    return cluster.run()


def named(path: Path) -> list[int]:
    return [i.rank for i in analyze_dumps(path)[0].implicated]


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("_dump_7", 7, ""),
        ("nccl_trace_rank_3.json", 3, ""),
        ("nccl_trace_rank_0", 0, ""),
        ("host-3_rank_5", 5, "host-3"),
        ("gpu-07.cluster_rank_12", 12, "gpu-07.cluster"),
        ("node12_dump_4", 4, ""),
        ("host3-rank-17.pickle.gz", 17, "host3"),
    ],
)
def test_rank_and_host_in_a_name(name: str, rank: int, host: str) -> None:
    assert candidates(name)[0] == rank
    assert host_of(name) == host


def test_a_number_that_is_in_none_of_the_groups_is_no_rank(tmp_path: Path) -> None:
    hung().write(tmp_path, name="trace_{rank}.gpu-99")
    assert [f.rank for f in read(tmp_path)[0]] == list(range(16))


def test_hosts_of_names_are_in_the_verdict(tmp_path: Path) -> None:
    verdict, _ = analyze_dumps(hung().write(tmp_path, name="host-{node}_rank_{rank}"))
    assert [(i.rank, i.node) for i in verdict.implicated] == [(5, "host-1")]
    assert "rank 5 on host-1" in verdict.summary


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("ring", [False, True])
def test_formats(tmp_path: Path, as_json: bool, ring: bool) -> None:
    assert named(hung().write(tmp_path, as_json=as_json, ring=ring)) == [5]


@pytest.mark.parametrize("as_json", [False, True])
def test_without_configuration_nobody_else_is_named(tmp_path: Path, as_json: bool) -> None:
    assert named(hung().write(tmp_path / "ring", as_json=as_json, ring=True, config=False)) == [5]
    assert set(named(hung().write(tmp_path / "rest", as_json=as_json, config=False))) <= {5}


def test_without_status_and_configuration_the_ring_tells(tmp_path: Path) -> None:
    assert named(hung().write(tmp_path, ring=True, config=False, status=False)) == [5]


def test_compressed_dumps(tmp_path: Path) -> None:
    for path in hung().write(tmp_path / "plain").iterdir():
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert named(tmp_path) == [5]


def test_dumps_of_victims_may_be_missing_empty_or_cut(tmp_path: Path) -> None:
    hung().write(tmp_path)
    (tmp_path / "_dump_12").unlink()
    (tmp_path / "_dump_13").write_bytes(b"")
    data = (tmp_path / "_dump_14").read_bytes()
    (tmp_path / "_dump_14").write_bytes(data[: len(data) // 2])
    (tmp_path / "fault_injection.log").write_text("Fault ranks: [0]")
    verdict, trouble = analyze_dumps(tmp_path)
    assert [i.rank for i in verdict.implicated] == [5]
    assert {c.rank for c in verdict.cleared} == set(range(16)) - {5}
    reasons = {c.rank: c.reason for c in verdict.cleared}
    assert reasons[12] == "there is no dump of it"
    assert "empty" in reasons[13]
    assert any(line.startswith("_dump_14: ") for line in trouble)


def test_without_the_dump_of_the_culprit_nobody_is_named(tmp_path: Path) -> None:
    hung().write(tmp_path)
    (tmp_path / "_dump_5").unlink()
    verdict, _ = analyze_dumps(tmp_path)
    assert not verdict.implicated
    assert verdict.status is Status.INCONCLUSIVE
    assert "rank 5: there is no dump of it" in verdict.summary


def test_an_older_dump_is_no_evidence_of_being_late(tmp_path: Path) -> None:
    """Rank 3 was dumped a step before the others finished theirs, which they could not without it."""
    Cluster(2, 2, 2).run().write(tmp_path, ring=True)
    early = Cluster(2, 2, 2)
    early.hang(3, 0, step=2)
    early.run().write(tmp_path / "early", ring=True)
    os.replace(tmp_path / "early" / "_dump_3", tmp_path / "_dump_3")
    for path in (tmp_path / "early").iterdir():
        path.unlink()
    verdict, _ = analyze_dumps(tmp_path)
    assert verdict.state is State.SUPPRESSED
    assert not verdict.implicated
    assert any("older than the others" in e.text for e in verdict.evidence)


class Exploit:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize(
    "value", [Exploit(), {"entries": [Exploit()]}, Path("/"), {"entries": {1: complex(1)}}]
)
def test_a_pickle_that_names_anything_is_refused(value: object) -> None:
    with pytest.raises(Unreadable, match="plain values only"):
        parse(pickle.dumps(value))


@pytest.mark.parametrize(
    "data", [b"", b"  \n", b"{", b"\x80\x05", b"not a dump", b"[1, 2]", b'{"a": 1}', pickle.dumps([1])]
)
def test_what_is_no_dump_says_so(data: bytes) -> None:
    with pytest.raises(Unreadable):
        parse(data)


def test_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(Unreadable, match="version 3"):
        parse(json.dumps({"version": "3.0", "entries": []}).encode())


def test_malformed_entries_are_left_out() -> None:
    good = {"process_group": ["0", "default_pg"], "collective_seq_id": 1, "profiling_name": "nccl:all_reduce"}
    odd = [1, None, {}, {"process_group": []}, good | {"collective_seq_id": "x"}, good | {"input_sizes": 3}]
    assert len(parse(json.dumps({"version": "2.5", "entries": [good, *odd]}).encode()).entries) == 2


def test_a_directory_without_dumps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        analyze_dumps(tmp_path)
    (tmp_path / "_dump_0").write_bytes(b"")
    with pytest.raises(ConfigError, match="the file is empty"):
        analyze_dumps(tmp_path)


def test_one_file_is_judged_alone(tmp_path: Path) -> None:
    path = hung().write(tmp_path) / "_dump_4"
    verdict, _ = analyze_dumps(path)
    assert not verdict.implicated
    assert verdict.status is Status.INCONCLUSIVE


def test_status_keys_without_entries_follow_the_order_of_creation(tmp_path: Path) -> None:
    cluster = hung()
    files, _ = read(cluster.write(tmp_path))
    dump = next(f.dump for f in files if f.rank == 0 and f.dump is not None)
    mine = [g.name for g in cluster.groups if 0 in g.members]
    assert names_by_key(dump) == dict(zip(sorted(dump.counters, key=int), mine, strict=True))


def test_members_that_do_not_fit_are_not_believed(tmp_path: Path) -> None:
    """Without configuration a group of four of which only two left dumps looks like one of two."""
    hung().write(tmp_path, config=False, ring=True)
    for rank in (4, 6):
        (tmp_path / f"_dump_{rank}").unlink()
    files, _ = read(tmp_path)
    layout = reconstruct({f.rank: f.dump for f in files if f.dump is not None})
    tensor = [g for g in layout.groups if g.description == "TENSOR_MODEL_PARALLEL_GROUP" and 5 in g.progress]
    assert [g.members for g in tensor] == [None]
