"""A collective left out or made once more, against a dumb model: who is off, and never anybody else.

All ranks run one program of collectives in one group, in steps; one rank leaves one out or makes one twice.
Collectives of one size run together whatever they compute, so nobody notices, until two calls meet whose
sizes differ, or the program ends. The model runs to that place and publishes what every rank would have.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scoutd.agent.evidence import Fingerprints, Phase
from scoutd.agent.verdict import Cause
from tests.unit.agent.job import WORLD, Job, confirmed, implicated

SIZES = {"s": 64, "m": 64, "g": 64, "b": 1}
"""Calls by name: sum, maximum and minimum of one size, and something small."""

Calls = list[tuple[int, str]]
"""(step, name) of every call."""


def program(step: str, steps: int, ending: str) -> Calls:
    return [(k, name) for k in range(steps) for name in step] + [(steps, name) for name in ending]


def meeting(programs: list[Calls]) -> int | None:
    """The first position at which sizes differ or somebody has ended; None if all end together."""
    for k in range(max(map(len, programs))):
        sizes = {SIZES[calls[k][1]] if k < len(calls) else 0 for calls in programs}
        if len(sizes) > 1:
            return k
    return None


def publish(programs: list[Calls], at: int, stepping: bool) -> Job:
    job = Job(len(programs))
    for rank, calls in enumerate(programs):
        told = calls[: at + 1][-16:]
        reached = min(at + 1, len(calls))
        if at < len(calls):
            name = calls[at][1]
            job.waits(rank, sequence=at + 1, argument=name, numel=SIZES[name])
        else:
            job.at(rank, Phase.EXITING, "interpreter exit", 6.0)
        step = calls[min(at, len(calls) - 1)][0] if stepping else 0
        history = Fingerprints(reached, tuple(ord(name) for _, name in told))
        view = next(v for v in job.ranks[rank].groups if v.group == WORLD)
        job.change(
            rank,
            groups=(replace(view, enqueued=reached, history=history),),
            coordinates=(replace(job.ranks[rank].coordinates[0], step=step),),
        )
    return job


@settings(max_examples=150, deadline=None)
@given(
    world=st.integers(3, 8),
    step=st.text("smg", min_size=1, max_size=4),
    steps=st.integers(2, 5),
    ending=st.sampled_from(["", "b", "bsb"]),
    rank=st.integers(0, 7),
    where=st.integers(0, 19),
    twice=st.booleans(),
    stepping=st.booleans(),
)
def test_who_is_off_by_one_is_named_and_nobody_else(
    world: int, step: str, steps: int, ending: str, rank: int, where: int, twice: bool, stepping: bool
) -> None:
    calls = program(step, steps, ending)
    at = where % (len(step) * steps)
    own = calls[: at + 1] + calls[at:] if twice else calls[:at] + calls[at + 1 :]
    programs = [own if r == rank % world else calls for r in range(world)]
    met = meeting(programs)
    assert met is not None
    found = confirmed(publish(programs, met, stepping).run(1))
    assert [implicated(v) for v in found] == [[rank % world]]
    assert found[0].cause in (Cause.COLLECTIVE_MISSING, Cause.COLLECTIVE_MISMATCH)
    if stepping and ending == "b" and own[met : met + 1] and own[met][0] != calls[met][0]:
        assert found[0].cause is Cause.COLLECTIVE_MISSING, "steps prove it"


@settings(max_examples=60, deadline=None)
@given(world=st.integers(3, 8), step=st.text("smg", min_size=1, max_size=4), rank=st.integers(0, 7))
def test_one_wrong_call_is_a_mismatch(world: int, step: str, rank: int) -> None:
    """A small call in the place of a large one, at the end of what anybody has called."""
    calls = program(step, 3, "")
    own = [*calls[:-1], (calls[-1][0], "b")]
    programs = [own if r == rank % world else calls for r in range(world)]
    (verdict,) = confirmed(publish(programs, len(calls) - 1, stepping=True).run(1))
    assert (verdict.cause, implicated(verdict)) == (Cause.COLLECTIVE_MISMATCH, [rank % world])
