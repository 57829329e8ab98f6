"""Ranks in words: ``rank 3``, ``ranks 0, 2–4``, and for thousands of scattered ones a count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_RUNS: Final = 8
"""Runs that are written out; beyond that nobody reads them."""


def runs(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Maximal runs (first, last) of consecutive ranks, ascending, duplicates dropped."""
    found: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if found and rank == found[-1][1] + 1:
            found[-1] = (found[-1][0], rank)
        else:
            found.append((rank, rank))
    return found


def compress(ranks: Iterable[int]) -> str:
    """``0, 2–4``: every rank, or the first runs and how many more there are; empty for no rank."""
    found = runs(ranks)
    words = [_run(*run) for run in found[:MAX_RUNS]]
    more = sum(last - first + 1 for first, last in found[MAX_RUNS:])
    if more:
        words.append(f"… and {more} more")
    return ", ".join(words)


def _run(first: int, last: int) -> str:
    if last - first < 2:
        return ", ".join(str(rank) for rank in range(first, last + 1))
    return f"{first}–{last}"


def name(ranks: Iterable[int]) -> str:
    """``rank 3`` or ``ranks 0, 2–4``; ``nobody`` for none. Many ranks begin with their count."""
    ranks = set(ranks)
    if not ranks:
        return "nobody"
    if len(ranks) == 1:
        return f"rank {next(iter(ranks))}"
    prefix = f"{len(ranks)} " if len(ranks) > 8 else ""
    return f"{prefix}ranks {compress(ranks)}"
