"""``scoutd demo``: a real training job on CPU ranks, one of which breaks, and the verdict.

The job is ``examples/char_transformer.py``, an ordinary script under torchrun that knows nothing of scoutd;
the demo only chooses its ``--fault`` and runs it as a user would, ``scoutd run --on-verdict stop``. A corrupt
rank is the work of the fault kit (``scoutd.shim.faults``), in replays alone: the training is not touched. It
succeeds if the confirmed verdict names the broken rank and nobody else, so it is also a test of the whole
installation.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scoutd.daemon.cli import launch, ranges
from scoutd.daemon.cli.options import RunOptions
from scoutd.daemon.cli.run import Outcome, run_command
from scoutd.daemon.errors import LocalError

SCRIPT: Final = launch.PACKAGE / "examples" / "char_transformer.py"
LAUNCHER: Final = launch.PACKAGE / "examples" / "launch.py"
STALL_TIMEOUT_S: Final = 5.0
STEPS_AFTER: Final = 40
"""Steps the job would still make after the fault."""

REPLAY_EVERY: Final = 5
REPLAY_VARIANTS: Final = 2
"""Often, because the demo is short: every recipe has its turn within some twenty steps."""

STORIES: Final = {
    "hang": "rank {rank} will stop in the middle of a forward pass, inside the MLP of its third block",
    "kill": "rank {rank} will be killed (SIGKILL) in the middle of a forward pass",
    "exception": "rank {rank} will raise an exception in the middle of a forward pass",
    "mismatch": "rank {rank} will call all_reduce with a tensor of another size than the others",
    "corrupt": "one bit of what rank {rank} computes in its second block will be wrong",
    "none": "nothing will break",
}


@dataclass(frozen=True, slots=True)
class Demo:
    """Which rank breaks how, and at which step."""

    fault: str
    rank: int
    step: int
    ranks: int
    verdicts: Path | None = None


def demo(asked: Demo) -> int:
    """The job has run; 0 if scoutd said what is true about it, else 1.

    Raises:
        LocalError: the demo cannot run here.
        ConfigError: an option is not acceptable.
    """
    _check(asked)
    story = STORIES[asked.fault].format(rank=asked.rank)
    say(f"training a character transformer on {asked.ranks} CPU ranks; at step {asked.step} {story}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("LOGLEVEL", "ERROR")
    if asked.fault == "corrupt":
        os.environ.update(SCOUTD_FAULTS="1", SCOUTD_FAULT=_corruption(asked))
    outcome = run_command(
        RunOptions(
            command=_command(asked),
            stop=True,
            stall_timeout_s=STALL_TIMEOUT_S,
            verdicts=asked.verdicts,
            replay_every=REPLAY_EVERY,
            replay_variants=REPLAY_VARIANTS,
        )
    )
    right, sentence = judge(asked, outcome)
    say(sentence)
    return 0 if right else 1


def judge(asked: Demo, outcome: Outcome) -> tuple[bool, str]:
    """Whether the verdict is true, and a sentence that says so."""
    named = sorted({each.rank for verdict in outcome.confirmed for each in verdict.implicated})
    if asked.fault == "none":
        if outcome.confirmed or outcome.code:
            return False, f"WRONG: nothing broke, but the verdict names {ranges.name(named)}"
        return True, "right: nothing broke, and there is no verdict"
    if named == [asked.rank]:
        return True, f"right: the verdict names rank {asked.rank} and nobody else"
    if not outcome.confirmed:
        return False, f"WRONG: rank {asked.rank} broke, and there is no verdict (exit code {outcome.code})"
    return False, f"WRONG: rank {asked.rank} broke, and the verdict names {ranges.name(named)}"


def say(line: str) -> None:
    print(f"demo: {line}", file=sys.stderr, flush=True)


def _check(asked: Demo) -> None:
    if not SCRIPT.exists():
        raise LocalError(f"the demo's script is not installed: {SCRIPT}")
    if importlib.util.find_spec("torch") is None:
        raise LocalError("the demo needs PyTorch; install it with: pip install 'scoutd[trainer]'")
    if asked.ranks < 1:
        raise LocalError(f"--ranks {asked.ranks}: at least 1 rank is needed")
    if not 0 <= asked.rank < asked.ranks:
        raise LocalError(
            f"--rank {asked.rank}: with {asked.ranks} ranks it is a number from 0 to {asked.ranks - 1}"
        )
    if asked.step < 1:
        raise LocalError(f"--step {asked.step}: the first step is 1")


def _corruption(asked: Demo) -> str:
    """From that step on, every replay of the block."""
    return f"target=output rank={asked.rank} module=*blocks.1* first={asked.step}"


def _command(asked: Demo) -> tuple[str, ...]:
    launcher = [sys.executable, str(LAUNCHER), "--standalone"]
    script = [f"--nproc-per-node={asked.ranks}", str(SCRIPT), f"--steps={asked.step + STEPS_AFTER}"]
    own = "none" if asked.fault == "corrupt" else asked.fault
    fault = [f"--fault={own}", f"--fault-rank={asked.rank}", f"--fault-step={asked.step}"]
    return (*launcher, *script, *fault)
