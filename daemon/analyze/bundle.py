"""A bundle: one archive with all that a verdict was decided on, so that anybody can decide it again.

    bundle.json      the moment (ages, reach, limits, open verdicts), versions, who made it
    evidence/*.pb    every node's report as the core saw it (scoutd.v1.NodeEvidence)
    verdict.json     the verdict in its newest state (scoutd.v1.Verdict)
    config.json      the agent's configuration
    stacks.txt       the stacks, for people

There is no secret in it: reports hold none, keys are files that the configuration only names, and the hook's
command is left out. Reports beyond ``MAX_EVIDENCE`` are left out and named. Reading trusts nothing: names and
sizes are checked before anything is unpacked, and nothing is written to disk.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from scoutd.agent.evidence import NodeReport, Phase
from scoutd.agent.known import Known
from scoutd.agent.moment import Moment
from scoutd.agent.settings import Settings
from scoutd.agent.verdict import Cause, Implicated, State
from scoutd.daemon.config import Config
from scoutd.daemon.errors import ConfigError
from scoutd.daemon.peer.reportcodec import MAX_REPORT_BYTES, decode_report, encode_report

FORMAT: Final = 1
MAX_EVIDENCE: Final = 48 << 20
MAX_FILES: Final = 1 << 16
MAX_UNPACKED: Final = MAX_EVIDENCE + (16 << 20)
HEAD: Final = "bundle.json"


@dataclass(frozen=True)
class Bundle:
    """``decided_ns``: wall-clock nanoseconds. ``about`` are the facts that the rules do not need."""

    id: str
    moment: Moment
    decided_ns: int
    about: Mapping[str, Any]


def pack(bundle: Bundle, verdict_json: str, config: Config, stacks: str) -> bytes:
    """The archive. Equal contents give equal bytes."""
    evidence, ages, omitted = _evidence(bundle.moment)
    head = {
        "format": FORMAT,
        "verdict": bundle.id,
        "decided_ns": bundle.decided_ns,
        **bundle.about,
        **_head(bundle.moment),
        "reports": ages,
        "omitted": omitted,
    }
    files = {
        HEAD: json.dumps(head, indent=1).encode(),
        "verdict.json": verdict_json.encode() + b"\n",
        "config.json": json.dumps(_public(config), indent=1).encode(),
        "stacks.txt": stacks.encode(),
        **evidence,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), bundle.decided_ns // 1_000_000_000, 0o600
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes) -> Bundle:
    """The bundle in these bytes.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    try:
        files = _files(data)
        head = json.loads(files[HEAD])
        if head["format"] != FORMAT:
            raise ConfigError(f"a bundle of format {head['format']}, this build reads {FORMAT}")
        about = {key: head.get(key, "") for key in ("node", "version", "python", "made_at", "omitted")}
        return Bundle(str(head["verdict"]), _moment(head, files), int(head["decided_ns"]), about)
    except (KeyError, TypeError, ValueError, AttributeError, tarfile.TarError, EOFError, OSError) as error:
        raise ConfigError(f"no readable bundle: {type(error).__name__}: {error}") from error


def _evidence(moment: Moment) -> tuple[dict[str, bytes], list[dict[str, Any]], list[str]]:
    """Reports by file name, their ages, and the nodes whose reports did not fit."""
    files: dict[str, bytes] = {}
    ages: list[dict[str, Any]] = []
    omitted: list[str] = []
    room = MAX_EVIDENCE
    for k, (report, age_ns) in enumerate(moment.reports):
        data = encode_report(report)
        if len(data) > min(room, MAX_REPORT_BYTES):
            omitted.append(report.node)
            continue
        room -= len(data)
        name = f"evidence/{k:05}.pb"
        files[name] = data
        ages.append({"file": name, "node": report.node, "age_ns": age_ns})
    return files, ages, omitted


def _head(moment: Moment) -> dict[str, Any]:
    settings = asdict(moment.settings)
    settings["phase_limits_s"] = {p.value: s for p, s in moment.settings.phase_limits_s.items()}
    return {
        "job": moment.job,
        "generation": moment.generation,
        "paused": moment.paused,
        "unreachable": sorted(moment.unreachable),
        "majority": moment.majority,
        "stale": sorted(moment.stale),
        "quiet_ns": dict(moment.quiet),
        "judge_deaths": moment.judge_deaths,
        "replays": moment.replays,
        "settings": settings,
        "known": [asdict(each) for each in moment.known],
    }


def _public(config: Config) -> dict[str, Any]:
    """The configuration without what may hold a secret."""
    told = asdict(config)
    if told["hooks"]["on_verdict"]:
        told["hooks"]["on_verdict"] = "(not in the bundle)"
    return told


def _files(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for entry in archive:
            total += entry.size
            if total > MAX_UNPACKED or len(found) > MAX_FILES:
                raise ValueError("it unpacks to more than a bundle may hold")
            stream = archive.extractfile(entry) if entry.isfile() else None
            if stream is not None:
                found[entry.name] = stream.read()
    return found


def _moment(head: Mapping[str, Any], files: Mapping[str, bytes]) -> Moment:
    reports: list[tuple[NodeReport, int]] = [
        (decode_report(files[each["file"]]), int(each["age_ns"])) for each in head["reports"]
    ]
    return Moment(
        job=str(head["job"]),
        generation=int(head["generation"]),
        reports=tuple(reports),
        paused=tuple((int(end), int(length)) for end, length in head["paused"]),
        unreachable=frozenset(map(str, head["unreachable"])),
        majority=bool(head["majority"]),
        stale=frozenset(map(str, head["stale"])),
        judge_deaths=bool(head["judge_deaths"]),
        settings=_settings(head["settings"]),
        known=tuple(_known(each) for each in head["known"]),
        quiet={str(node): int(ns) for node, ns in head.get("quiet_ns", {}).items()},
        replays=bool(head.get("replays", False)),
    )


def _settings(told: Mapping[str, Any]) -> Settings:
    """Limits that this build does not know are passed over."""
    names = {each.name for each in fields(Settings)}
    values = {name: value for name, value in told.items() if name in names}
    values["phase_limits_s"] = {Phase(p): float(s) for p, s in told["phase_limits_s"].items()}
    return Settings(**values)


def _known(told: Mapping[str, Any]) -> Known:
    return Known(
        id=str(told["id"]),
        cause=Cause(told["cause"]),
        state=State(told["state"]),
        ranks=tuple(told["ranks"]),
        blamed=tuple(Implicated(**each) for each in told["blamed"]),
        opened_age_ns=int(told["opened_age_ns"]),
        provisional=bool(told.get("provisional", False)),
        ending=bool(told.get("ending", False)),
    )
