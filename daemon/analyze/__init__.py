"""Analysis after the fact: files that a job left behind, judged by the rules that judge a living one."""

from __future__ import annotations

import tarfile
from pathlib import Path

from scoutd.agent.again import judge_again
from scoutd.agent.verdict import State, Verdict
from scoutd.daemon.analyze.bundle import unpack
from scoutd.daemon.analyze.files import read
from scoutd.daemon.analyze.judge import judge
from scoutd.daemon.analyze.moment import moment
from scoutd.daemon.errors import ConfigError


def analyze(path: Path) -> tuple[Verdict, list[str]]:
    """The verdict on what lies at ``path``, a bundle or dumps, its times in wall-clock ns; and trouble.

    Raises:
        ConfigError: nothing there can be read.
    """
    return analyze_bundle(path) if _is_bundle(path) else analyze_dumps(path)


def analyze_dumps(path: Path) -> tuple[Verdict, list[str]]:
    """The verdict on Flight Recorder dumps, its times in wall-clock ns, and what could not be used.

    Raises:
        ConfigError: there is no dump that can be read.
    """
    files, trouble = read(path)
    job = path.resolve().name or "dumps"
    return judge(moment(files, job), job, tuple(trouble)), trouble


def analyze_bundle(path: Path) -> tuple[Verdict, list[str]]:
    """The bundle's verdict, decided again from its evidence; and in words where that differs.

    Raises:
        ConfigError: it cannot be read, or its evidence gives no verdict.
    """
    bundle = unpack(path.read_bytes())
    found = {verdict.id: verdict for verdict in judge_again(bundle.moment, bundle.decided_ns)}
    trouble = [f"the report of node {node} was too large for the bundle" for node in bundle.about["omitted"]]
    if bundle.id in found:
        return found[bundle.id], trouble
    trouble.append(f"this build does not come to verdict {bundle.id} from the evidence in {path.name}")
    faults = [v for v in found.values() if v.state is State.CONFIRMED] or list(found.values())
    if not faults:
        raise ConfigError(f"{path}: the evidence gives no verdict here; the bundle was made for {bundle.id}")
    return faults[0], trouble


def _is_bundle(path: Path) -> bool:
    try:
        return path.is_file() and tarfile.is_tarfile(path)
    except OSError:
        return False
