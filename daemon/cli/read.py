"""The read commands: ask, then print a table for people or one JSON object for programs.

``watch --json`` alone prints JSON lines. ``verdicts`` and ``explain`` also read the file that ``scoutd run
--verdicts`` wrote, because the agent of a run is gone when the run is over.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.json_format import ParseError

from scoutd.daemon.cli.client import Client
from scoutd.daemon.cli.verdict_file import read_verdicts
from scoutd.daemon.codec import to_json
from scoutd.daemon.errors import ConfigError, ScoutdError
from scoutd.proto.v1 import query_pb2 as query
from scoutd.proto.v1 import verdict_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import RenderableType


class NotFound(ScoutdError):
    """There is no such verdict, or more than one."""


def status(address: str | None, job: str, json: bool) -> None:
    from scoutd.daemon.cli import tables

    response = Client(address).status(job)
    _print(response, None if json else tables.status(response))


def topology(address: str | None, job: str, json: bool) -> None:
    from scoutd.daemon.cli import tables

    response = Client(address).topology(job)
    _print(response, None if json else tables.topology(response))


def verdicts(address: str | None, job: str, suppressed: bool, file: Path | None, json: bool) -> None:
    from scoutd.daemon.cli import tables

    if file is None:
        response = Client(address).verdicts(job, suppressed)
    else:
        kept = [
            verdict
            for verdict in _from_file(file)
            if job in ("", verdict.job) and (suppressed or verdict.state != pb.SUPPRESSED)
        ]
        response = query.ListVerdictsResponse(verdicts=kept)
    _print(response, None if json else tables.verdicts(response))


def explain(address: str | None, id_: str, file: Path | None, json: bool) -> None:
    from scoutd.daemon.cli.render import explanation

    found = (
        list(Client(address).verdicts(suppressed=True, id_=id_).verdicts)
        if file is None
        else _from_file(file)
    )
    matching = [verdict for verdict in found if verdict.id.startswith(id_)]
    if not matching:
        raise NotFound(f"there is no verdict {id_}")
    if len(matching) > 1:
        raise NotFound(f"{id_} is the beginning of several: {', '.join(verdict.id for verdict in matching)}")
    _print(matching[0], None if json else explanation(matching[0]))


def watch(address: str | None, job: str, json: bool) -> None:
    from scoutd.daemon.cli.console import console
    from scoutd.daemon.cli.journal import Journal
    from scoutd.daemon.cli.render import panel
    from scoutd.daemon.cli.screen import notice

    journal = Journal()
    for verdict in Client(address).watch(job):
        if not journal.hear(verdict):
            continue
        if json:
            print(to_json(verdict), flush=True)
        elif verdict.state == pb.CONFIRMED:
            console().print(panel(verdict, f"scoutd explain {verdict.id}"))
        elif line := notice(verdict):
            print(line, flush=True)


def _from_file(file: Path) -> list[pb.Verdict]:
    try:
        return read_verdicts(file)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (ParseError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a file of verdicts: {error}") from error


def _print(message: Message, for_people: RenderableType | None) -> None:
    """JSON where there is nothing for people."""
    from scoutd.daemon.cli.console import console

    if for_people is None:
        print(to_json(message))
    else:
        console().print(for_people)
