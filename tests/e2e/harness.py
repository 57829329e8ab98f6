"""Runs one scenario as a user would, in a place of its own, and looks at what is left afterwards.

A ``Site`` is a private shared-memory root, runtime and state directory, so that scenarios do not meet.
Every process below it carries ``SCOUTD_TEST=<site>`` in its environment: that is how leftovers are found,
whatever their process group. Nothing here sleeps to be on the safe side; everything waits for a condition
(``until``) with a deadline that is generous enough for a busy machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
JOBS = HERE / "jobs"
SCOUTD = str(Path(sys.executable).with_name("scoutd"))
MARK = "SCOUTD_TEST"
PATIENT = ("--stall-timeout", "30")
"""For healthy jobs: on a busy machine the start of four ranks may well be silent for five seconds."""

Seen = TypeVar("Seen")
Verdict = dict[str, Any]


def until(condition: Callable[[], Seen], what: str, deadline_s: float = 60.0) -> Seen:
    """The first true value of ``condition``; fails the test with ``what`` after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.05)


def torchrun(
    *arguments: str, ranks: int = 4, script: str = "train.py", options: Sequence[str] = ()
) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launcher, *options, str(JOBS / script), *arguments]


def forked(*arguments: str, ranks: int = 4, script: str = "train.py") -> list[str]:
    """The quick launcher: one import of torch, then fork."""
    return [sys.executable, str(JOBS / "forked.py"), str(ranks), str(JOBS / script), *arguments]


def launched(name: str, *arguments: str, ranks: int = 4) -> list[str]:
    """A launcher of tests/e2e/jobs that brings its own way to start ranks."""
    return [sys.executable, str(JOBS / name), str(ranks), *arguments]


@dataclass(frozen=True)
class Outcome:
    """What a finished command left: exit code, output and the lines of its ``--verdicts`` file."""

    code: int
    out: str
    err: str
    verdicts: list[Verdict]
    wall_s: float

    @property
    def faults(self) -> list[Verdict]:
        """Confirmed verdicts, each id once, with its newest content."""
        newest = {v["id"]: v for v in self.verdicts if v["state"] == "CONFIRMED"}
        return list(newest.values())

    @property
    def fault(self) -> Verdict:
        assert len(self.faults) == 1, f"one fault verdict expected\n{self}"
        return self.faults[0]

    @property
    def suppressed(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.get("suppressed_because")]

    def __str__(self) -> str:
        lines = [
            " ".join(
                [v["state"], v["cause"], str(named(v)), v.get("summary", ""), v.get("suppressed_because", "")]
            )
            for v in self.verdicts
        ]
        tail = "\n".join([*self.out.splitlines()[-15:], *self.err.splitlines()[-60:]])
        return f"exit {self.code} after {self.wall_s:.1f} s\n" + "\n".join(lines) + "\n" + tail


class Running:
    """A started command; its output goes to files, so that no pipe can block it."""

    def __init__(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
        self.began = time.monotonic()
        self.folder = folder
        self.verdict_file = folder / "verdicts.jsonl"
        with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def verdicts(self) -> list[Verdict]:
        """The lines written so far; a line still being written is left out."""
        if not self.verdict_file.exists():
            return []
        whole = self.verdict_file.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def outcome(self) -> Outcome:
        code = self.process.returncode
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Outcome(code, out, err, self.verdicts(), time.monotonic() - self.began)

    def finish(self, deadline_s: float = 90.0) -> Outcome:
        """Waits for the end; one that does not come fails the test with all that is known."""
        try:
            self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s:g} s\n{self.outcome_so_far()}") from None
        return self.outcome()

    def outcome_so_far(self) -> str:
        self.process.returncode = self.process.poll() or 0
        return str(self.outcome())

    def end(self) -> Outcome:
        """Ends it as a user does: one SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.finish(30.0)


class Site:
    """One scenario's place. Use as a context: leaving it ends what is left and removes everything."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="scoutd-site-"))
        self.root = Path(tempfile.mkdtemp(prefix="scoutd-test-", dir="/dev/shm"))
        self.root.chmod(0o1777)
        self.runtime = self.folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.progress = self.folder / "progress"
        self.progress.mkdir()
        self.started = 0
        self.environment = {
            **{
                k: v
                for k, v in os.environ.items()
                if not k.startswith(("SCOUTD_", "PYTEST_", "TORCHELASTIC"))
            },
            MARK: self.folder.name,
            "SCOUTD_ROOT": str(self.root),
            "SCOUTD_RUNTIME_DIR": str(self.runtime),
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
        }

    def start(self, *command: str, **environment: str) -> Running:
        self.started += 1
        folder = self.folder / f"command-{self.started}"
        folder.mkdir()
        return Running(
            [c.replace("%DIR%", str(folder)) for c in command], folder, self.environment | environment
        )

    def watch(self, job: Sequence[str], *options: str, stop: bool = True, **environment: str) -> Running:
        """``scoutd run`` over a job, with a stall timeout of 5 s."""
        verdict = ["--on-verdict", "stop" if stop else "continue", "--verdicts", "%DIR%/verdicts.jsonl"]
        return self.start(
            SCOUTD, "run", "--stall-timeout", "5", *verdict, *options, "--", *job, **environment
        )

    def run(self, job: Sequence[str], *options: str, stop: bool = True, deadline_s: float = 90.0) -> Outcome:
        return self.watch(job, *options, stop=stop).finish(deadline_s)

    def ask(self, *question: str) -> Any:
        """The JSON answer of a read command, None while there is nobody to answer."""
        answer = self.start(SCOUTD, *question, "--json").finish(30.0)
        return json.loads(answer.out) if answer.code == 0 and answer.out else None

    def steps(self, rank: int = 0) -> int:
        """Finished steps of a rank of a job that was started with ``--progress``."""
        file = self.progress / f"rank-{rank}"
        return int(file.read_text()) if file.exists() else 0

    def losses(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in sorted(self.progress.glob("loss-*"))}

    def files(self) -> list[str]:
        """Everything below the shared-memory root but the directories of a user."""
        found = [p.relative_to(self.root) for p in self.root.rglob("*")]
        return sorted(str(p) for p in found if len(p.parts) > 1 and p.parts[1:] != (".pending",))

    def processes(self) -> dict[int, str]:
        """Living processes of this site: pid and command line."""
        mark = f"{MARK}={self.folder.name}".encode()
        return {pid: line for pid, environ, line in processes() if mark in environ.split(b"\0")}

    def agents(self) -> list[int]:
        """Pids of the agents of this site."""
        return [
            pid for pid, line in self.processes().items() if "scoutd.daemon" in line or "scoutd agent" in line
        ]

    def is_clean(self) -> bool:
        """True once no process and no shared-memory file of this site is left, runtime directory included."""
        return not self.processes() and not self.files() and not list(self.runtime.iterdir())

    def assert_clean(self) -> None:
        with contextlib.suppress(AssertionError):
            until(self.is_clean, "a clean site", 8.0)
        left = {"processes": self.processes(), "files": self.files(), "runtime": list(self.runtime.iterdir())}
        assert not any(left.values()), f"left behind: {left}"

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.processes(), "all processes gone", 20.0)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def processes() -> Iterator[tuple[int, bytes, str]]:
    """(pid, environment, command line) of every living process that may be read; no zombies."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX":
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(entry.name), environ, line


def named(verdict: Verdict) -> list[int]:
    """The implicated ranks."""
    return sorted(int(i.get("rank", 0)) for i in verdict.get("implicated", []))


def cleared(verdict: Verdict) -> dict[int, list[int]]:
    """The cleared ranks, each with whom it waits for."""
    return {
        int(c.get("rank", 0)): [int(w) for w in c.get("waits_for", [])] for c in verdict.get("cleared", [])
    }


def line_of(file: Path, marker: str) -> int:
    """The line number of the only line that contains ``marker``."""
    (number,) = [i for i, line in enumerate(file.read_text().splitlines(), 1) if marker in line]
    return number
