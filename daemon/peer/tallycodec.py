"""Tallies of replay rounds on the wire.

A writer cuts what is long, a reader refuses what is longer: a round in which everybody differs must not fill
a probe. What is cut is not told later: a round of more than ``MOST_RUNS`` peers none of which are neighbours
is complete nowhere, and closes at its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scoutd.agent import timesketch
from scoutd.agent.tally import Camp, Runs, Tally
from scoutd.agent.timesketch import Times
from scoutd.proto.v1 import peer_pb2 as pb

MOST_TALLIES: Final = 16
MOST_CAMPS: Final = 16
MOST_RUNS: Final = 256
MOST_RANKS: Final = 1 << 20


def write_tallies(tallies: Sequence[Tally]) -> list[pb.Tally]:
    return [
        pb.Tally(
            group=tally.group,
            recipe=tally.recipe,
            key=tally.key,
            scheme=tally.scheme,
            peers=tally.peers,
            camps=[
                pb.Camp(value=camp.value, runs=[n for run in camp.runs[:MOST_RUNS] for n in run])
                for camp in tally.camps[:MOST_CAMPS]
            ],
            times=[n for time in tally.times[: timesketch.MOST] for n in time],
        )
        for tally in tallies[:MOST_TALLIES]
    ]


def read_tallies(messages: Sequence[pb.Tally]) -> tuple[Tally, ...]:
    """Raises ValueError for what is too long, empty, no run of ranks or no time."""
    if len(messages) > MOST_TALLIES:
        raise ValueError(f"{len(messages)} tallies")
    return tuple(
        Tally(
            each.group,
            each.recipe,
            each.key,
            each.scheme,
            each.peers,
            _read_camps(each.camps),
            _read_times(each.times),
        )
        for each in messages
    )


def _read_camps(messages: Sequence[pb.Camp]) -> tuple[Camp, ...]:
    if not 0 < len(messages) <= MOST_CAMPS:
        raise ValueError(f"a tally with {len(messages)} camps")
    return tuple(Camp(each.value, _read_runs(each.runs)) for each in messages)


def _read_times(flat: Sequence[int]) -> Times:
    if len(flat) % 2 or len(flat) > 2 * timesketch.MOST:
        raise ValueError("times of a tally are not a bounded list of pairs")
    times = tuple(zip(flat[::2], flat[1::2], strict=True))
    ranks = [rank for rank, _ in times]
    sound = all(rank < MOST_RANKS and 0 < code <= timesketch.MOST_CODE for rank, code in times)
    if not sound or ranks != sorted(set(ranks)):
        raise ValueError("times of a tally are out of order, too large or none")
    return times


def _read_runs(flat: Sequence[int]) -> Runs:
    if not flat or len(flat) % 2 or len(flat) > 2 * MOST_RUNS:
        raise ValueError("ranks of a tally are not a bounded list of pairs")
    runs = tuple(zip(flat[::2], flat[1::2], strict=True))
    if not _ascending(runs):
        raise ValueError("ranks of a tally are out of order, or too many")
    return runs


def _ascending(runs: Iterable[tuple[int, int]]) -> bool:
    end = -1
    for first, size in runs:
        if first <= end or not 0 < size <= MOST_RANKS or first + size > MOST_RANKS:
            return False
        end = first + size
    return True
