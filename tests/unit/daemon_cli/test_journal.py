from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from scoutd.daemon.cli.journal import MAX_VERDICTS, Journal
from scoutd.daemon.cli.verdict_file import read_verdicts
from scoutd.proto.v1 import verdict_pb2 as pb

from .verdicts import hang

STATES = [pb.OPEN, pb.CONFIRMED, pb.RESOLVED]


def test_every_change_of_state_is_one_line_in_the_file() -> None:
    file = io.StringIO()
    journal = Journal(file)
    assert [journal.hear(hang(state=state)) for state in STATES] == [True, True, True]
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [line["state"] for line in lines] == ["OPEN", "CONFIRMED", "RESOLVED"]
    assert lines[1]["implicated"][0]["rank"] == 2
    assert lines[1]["cause"] == "RANK_STALLED"
    assert [cleared["waits_for"] for cleared in lines[1]["cleared"]] == [[2], [2], [2]]


def test_what_is_repeated_after_a_restart_is_no_news() -> None:
    file = io.StringIO()
    journal = Journal(file)
    for state in [pb.OPEN, pb.CONFIRMED]:
        journal.hear(hang(state=state))
    assert [journal.hear(hang(state=state)) for state in [pb.OPEN, pb.CONFIRMED]] == [False, False]
    assert len(file.getvalue().splitlines()) == 2


def test_a_confirmed_verdict_that_an_agent_opens_again_is_no_news() -> None:
    journal = Journal()
    journal.hear(hang(state=pb.CONFIRMED))
    assert not journal.hear(hang(state=pb.OPEN))


def test_new_content_is_kept_without_being_news() -> None:
    journal = Journal()
    journal.hear(hang())
    assert not journal.hear(hang(summary="with a stack"))
    assert [verdict.summary for verdict in journal.confirmed] == ["with a stack"]


def test_confirmed_once_is_confirmed_though_resolved_later() -> None:
    journal = Journal()
    journal.hear(hang(state=pb.SUPPRESSED, id="b"))
    journal.hear(hang())
    journal.hear(hang(state=pb.RESOLVED))
    assert [verdict.id for verdict in journal.confirmed] == ["0a1b2c3d4e5f"]


def test_memory_is_bounded() -> None:
    journal = Journal()
    for number in range(MAX_VERDICTS + 10):
        journal.hear(pb.Verdict(id=str(number), state=pb.CONFIRMED))
    assert len(journal.latest) == MAX_VERDICTS
    assert len(journal.confirmed) == MAX_VERDICTS


def test_a_file_of_verdicts_is_read_back_with_the_newest_line_of_each(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with path.open("w") as file:
        journal = Journal(file)
        for state in STATES:
            journal.hear(hang(state=state))
        journal.hear(hang(id="b"))
    assert [(verdict.id, verdict.state) for verdict in read_verdicts(path)] == [
        ("0a1b2c3d4e5f", pb.RESOLVED),
        ("b", pb.CONFIRMED),
    ]


def test_every_line_is_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    with path.open("w") as file:
        Journal(file).hear(hang())
        assert json.loads(path.read_text())["id"] == "0a1b2c3d4e5f"


def test_a_full_disk_is_the_callers_to_report() -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        Journal(Full()).hear(hang())
