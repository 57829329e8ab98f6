"""A bundle carries a verdict to another machine: packed, unpacked, decided again."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from scoutd.agent.replay import Part
from scoutd.agent.verdict import State, Verdict
from scoutd.daemon.analyze import analyze
from scoutd.daemon.analyze.bundle import Bundle, pack, unpack
from scoutd.daemon.config import Config, HooksSection, PeersSection
from scoutd.daemon.errors import ConfigError
from tests.unit.agent.job import Job, confirmed
from tests.unit.agent.replaying import Replaying, broken, result

AT = 1_700_000_000_000_000_000


def hang() -> tuple[Verdict, Bundle]:
    job = Job(4)
    for rank in (0, 1, 3):
        job.waits(rank)
    job.hangs(2)
    (verdict,) = confirmed(job.run(1))
    moment = job.core.moment(verdict.id)
    assert moment is not None
    return verdict, Bundle(verdict.id, moment, AT, {"node": "node-1", "version": "0.1.0"})


def test_the_same_moment_comes_out() -> None:
    _, bundle = hang()
    again = unpack(pack(bundle, "{}", Config(), ""))
    assert (again.id, again.moment, again.decided_ns) == (bundle.id, bundle.moment, AT)


def test_the_same_verdict_comes_out(tmp_path: Path) -> None:
    verdict, bundle = hang()
    file = tmp_path / "b.tar.gz"
    file.write_bytes(pack(bundle, "{}", Config(), ""))
    again, trouble = analyze(file)
    assert trouble == []
    assert (again.id, again.cause, again.state) == (verdict.id, verdict.cause, State.CONFIRMED)
    assert (again.implicated, again.cleared) == (verdict.implicated, verdict.cleared)
    assert again.confirmed_ns == AT


def test_a_bundle_whose_evidence_says_otherwise_says_so(tmp_path: Path) -> None:
    _, bundle = hang()
    file = tmp_path / "b.tar.gz"
    file.write_bytes(pack(Bundle("another", bundle.moment, AT, {}), "{}", Config(), ""))
    _, trouble = analyze(file)
    assert "does not come to verdict another" in trouble[0]


def test_no_secret_is_inside() -> None:
    _, bundle = hang()
    config = Config(
        hooks=HooksSection(on_verdict="curl -H 'Authorization: hunter2' https://pager"),
        peers=PeersSection(key_file="/etc/scoutd/key"),
    )
    data = pack(bundle, "{}", config, "")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        texts = [archive.extractfile(entry) for entry in archive]
        assert all(b"hunter2" not in text.read() for text in texts if text is not None)


def test_a_verdict_of_replays_comes_out_of_its_rounds(tmp_path: Path) -> None:
    job = Replaying(5)
    job.replays(50, {2: broken(result(50), Part.OUTPUT)})
    (verdict,) = job.confirmed()
    moment = job.core.moment(verdict.id)
    assert moment is not None
    file = tmp_path / "b.tar.gz"
    file.write_bytes(pack(Bundle(verdict.id, moment, AT, {}), "{}", Config(), ""))
    again, trouble = analyze(file)
    assert trouble == []
    assert (again.id, again.summary, again.evidence) == (verdict.id, verdict.summary, verdict.evidence)
    assert (again.implicated, again.cleared) == (verdict.implicated, verdict.cleared)


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        archive(other=b"{}"),
        archive(**{"bundle.json": b"{"}),
        archive(**{"bundle.json": b"[]"}),
        archive(**{"bundle.json": json.dumps({"format": 99}).encode()}),
        archive(**{"bundle.json": json.dumps({"format": 1, "verdict": "x", "decided_ns": 1}).encode()}),
    ],
)
def test_what_is_no_bundle_says_so(data: bytes) -> None:
    with pytest.raises(ConfigError):
        unpack(data)


def test_a_cut_bundle_says_so() -> None:
    data = pack(hang()[1], "{}", Config(), "")
    with pytest.raises(ConfigError):
        unpack(data[: len(data) // 2])


def test_one_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoutd.daemon.analyze.bundle.MAX_UNPACKED", 1000)
    with pytest.raises(ConfigError, match="more than a bundle may hold"):
        unpack(archive(**{"bundle.json": b" " * 2000}))


def test_reports_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scoutd.daemon.analyze.bundle.MAX_EVIDENCE", 10)
    again = unpack(pack(hang()[1], "{}", Config(), ""))
    assert again.moment.reports == ()
    assert again.about["omitted"] == ["node-1"]
