"""Analysis after the fact: files that a job left behind, judged by the rules that judge a living one."""

from __future__ import annotations

from pathlib import Path

from scoutd.agent.verdict import Verdict
from scoutd.daemon.analyze.files import read
from scoutd.daemon.analyze.judge import judge
from scoutd.daemon.analyze.moment import moment


def analyze_dumps(path: Path) -> tuple[Verdict, list[str]]:
    """The verdict on Flight Recorder dumps, its times in wall-clock ns, and what could not be used.

    Raises:
        ConfigError: there is no dump that can be read.
    """
    files, trouble = read(path)
    job = path.resolve().name or "dumps"
    return judge(moment(files, job), job, tuple(trouble)), trouble
