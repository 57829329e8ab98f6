"""``scoutd doctor``: what the environment lacks, and which limits of silence the jobs' history suggests."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from scoutd.agent.history import FACTOR, LEAST_S
from scoutd.daemon import configsource
from scoutd.daemon.cli.checks import Check, checks
from scoutd.daemon.cli.client import Client, NoAgent
from scoutd.daemon.codec import to_dict
from scoutd.proto.v1 import query_pb2 as query

if TYPE_CHECKING:
    from rich.console import RenderableType

FORMULA = f"suggested = max({LEAST_S:g} s, {FACTOR:g} × longest silence that ended well)"


def doctor(address: str | None, job: str, config: Path | None, as_json: bool) -> None:
    """A table of checks, and one of limits per job of the agent, if one answers.

    Raises:
        ConfigError: the configuration is wrong.
        NoAgent: the agent that was asked for does not answer.
    """
    found = list(checks(configsource.load(config, os.environ)))
    limits, silence = _limits(address, job)
    if as_json:
        told = {
            "checks": [asdict(check) for check in found],
            "formula": FORMULA,
            "jobs": to_dict(limits)["jobs"],
            "agent": silence or "answers",
        }
        print(json.dumps(told, ensure_ascii=False, separators=(",", ":")))
        return
    from scoutd.daemon.cli.console import console

    console().print(_page(found, limits, silence))


def _limits(address: str | None, job: str) -> tuple[query.GetLimitsResponse, str]:
    """What the agent says, or why there is none; an agent that was named must answer."""
    try:
        return Client(address).limits(job), ""
    except NoAgent as error:
        if address is not None:
            raise
        return query.GetLimitsResponse(), str(error)


def _page(found: list[Check], limits: query.GetLimitsResponse, silence: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from scoutd.daemon.cli import tables

    parts: list[RenderableType] = [tables.checks(found), Text()]
    if silence:
        parts.append(Text(f"no limits to suggest: {silence}", style="yellow"))
    elif not limits.jobs:
        parts.append(Text("no limits to suggest: no job is running on this node"))
    for job in limits.jobs:
        parts += [*tables.limits(job), Text()]
    if limits.jobs:
        parts.append(Text(f"{FORMULA}; only silences of ranks that waited for nobody count"))
    return Group(*parts)
