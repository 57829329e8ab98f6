"""Verdict history: bounded in memory, whole on disk, honest when the disk fails."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from scoutd.daemon.errors import LocalError
from scoutd.daemon.ledger import Ledger
from scoutd.daemon.store import FILE_NAME, Entry, Store


def entry(identity: str = "aa", state: str = "CONFIRMED", job: str = "j", run: str = "r") -> Entry:
    return Entry(identity, job, 1, run, state, f"{identity} {state}".encode())


def test_only_news_counts() -> None:
    ledger = Ledger(None)
    assert ledger.put(entry())
    assert not ledger.put(entry())
    assert ledger.put(entry(state="RESOLVED"))
    assert ledger.select() == [entry(state="RESOLVED")]


def test_select_by_job_run_beginning_and_state() -> None:
    ledger = Ledger(None)
    rows = [entry("aa"), entry("ab", job="k"), entry("ba", run="s"), entry("bb", "SUPPRESSED")]
    for row in rows:
        ledger.put(row)
    assert ledger.select(job="k") == [rows[1]]
    assert ledger.select(run="s") == [rows[2]]
    assert ledger.select(verdict_id="a") == rows[:2]
    assert ledger.select(suppressed=False) == rows[:3]


def test_full_ledger_evicts_the_oldest_that_is_not_open() -> None:
    ledger = Ledger(None, limit=2)
    for row in (entry("open", "OPEN"), entry("old"), entry("new")):
        ledger.put(row)
    assert [each.id for each in ledger.select()] == ["open", "new"]


def test_history_survives_a_restart_without_what_was_open(tmp_path: Path) -> None:
    first = Ledger(Store(tmp_path))
    for row in (entry("aa", "OPEN"), entry("aa"), entry("bb", "OPEN"), entry("cc", "SUPPRESSED")):
        first.put(row)
    first.close()
    second = Ledger(Store(tmp_path))
    assert second.select() == [entry("aa"), entry("cc", "SUPPRESSED")]
    second.close()


def test_incarnation_grows_and_generation_never_falls(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert [store.next_incarnation(node) for node in ("n0", "n0", "n1")] == [1, 2, 1]
    store.put_generation("j", 3)
    store.put_generation("j", 2)
    store.close()
    again = Store(tmp_path)
    assert (again.next_incarnation("n0"), again.generation("j"), again.generation("k")) == (3, 3, 0)
    again.close()


def test_unusable_directory_is_a_clear_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match=r"state directory .*file"):
        Store(tmp_path / "file")
    (tmp_path / FILE_NAME).write_bytes(b"not a database, certainly not one of ours" * 50)
    with pytest.raises(LocalError, match="not a database"):
        Store(tmp_path)


def test_schema_of_a_later_build_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(LocalError, match="schema 9, this build writes 1"):
        Store(tmp_path)


def test_failing_disk_turns_the_store_off_and_is_a_warning(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ledger = Ledger(store)
    other = sqlite3.connect(tmp_path / FILE_NAME)
    other.execute("DROP TABLE verdicts")
    other.close()
    assert ledger.put(entry())
    ledger.close()
    assert "no such table" in ledger.warning
    assert ledger.select() == [entry()]
    store.put(entry("bb"))
    assert store.dropped == 1
