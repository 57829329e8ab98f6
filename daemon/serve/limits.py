"""The limits of silence in force, beside what the jobs' own history suggests.

A setting limits the silence of one or several phases; what is suggested for it follows from the longest
silence of any of them that ended well on this node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scoutd.agent.evidence import Phase
from scoutd.agent.history import FIRST_STEP, Silence, suggestion_s
from scoutd.agent.verdict import State
from scoutd.daemon.codec import seconds
from scoutd.daemon.config import StallSection
from scoutd.daemon.jobs import Job
from scoutd.proto.v1 import query_pb2 as pb

OWN_LIMITS: Final = {
    Phase.INIT.value: "init_s",
    Phase.CHECKPOINT.value: "checkpoint_s",
    Phase.COMPILE.value: "compile_s",
    Phase.EVAL.value: "eval_s",
    Phase.EXITING.value: "exit_s",
    FIRST_STEP: "first_step_s",
}
"""Phases with a setting of their own; all others have the stall timeout."""


def encode_limits(job: Job, stall: StallSection) -> pb.JobLimits:
    """One line per setting of which the history tells something."""
    states = [verdict.state for verdict in job.core.verdicts]
    by_setting: dict[str, dict[str, Silence]] = {}
    for phase, silence in job.core.history.silences.items():
        by_setting.setdefault(OWN_LIMITS.get(phase, "timeout_s"), {})[phase] = silence
    return pb.JobLimits(
        job=job.name,
        generation=job.generation,
        suppressed=states.count(State.SUPPRESSED),
        confirmed=states.count(State.CONFIRMED) + states.count(State.RESOLVED),
        limits=[_limit(name, by_setting[name], stall) for name in sorted(by_setting)],
    )


def _limit(name: str, silences: Mapping[str, Silence], stall: StallSection) -> pb.PhaseLimit:
    longest = max(silence.longest_ns for silence in silences.values())
    return pb.PhaseLimit(
        setting=f"stall.{name}",
        phases=sorted(silences),
        limit_s=max(stall.timeout_s, getattr(stall, name)),
        longest_s=seconds(longest),
        ended=sum(silence.ended for silence in silences.values()),
        suggested_s=suggestion_s(longest),
    )
