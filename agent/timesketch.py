"""The times of a replay round in a few bytes, however many ranks it has (design §4).

A *sketch* holds the slowest few ranks and a random few, each with its time. Which ones are random follows
from the round and the rank alone, so sketches merge by union: order, duplicates and loss are harmless, and
whoever has heard of all ranks has the same sketch, at most twelve ranks of a hundred thousand. The random
ones say what is usual; among the slowest must be whoever is too slow. A group of eight or fewer is in its
sketch as a whole.

Times are rounded to eight bits, 0.8 % at most, and packed into one small number; in whole numbers, so that
all agents compute the same. A sketch only raises a suspicion: whoever is named was measured exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Times = tuple[tuple[int, int], ...]
"""(rank, code) in the order of ranks."""

SAMPLE: Final = 8
"""Random ranks. Three rounds of them give 24 deviations, enough for a scale; ten more bytes would not pay."""
SLOWEST: Final = 4
"""So many ranks can be too slow at once and all be seen; after these were named, the next ones are."""
MOST: Final = SAMPLE + SLOWEST
MANTISSA: Final = 7
MOST_CODE: Final = ((65 - MANTISSA) << MANTISSA) - 1
_WORD: Final = (1 << 64) - 1


def code_of(ns: int) -> int:
    """The time, rounded down to eight bits; 0 for none."""
    shift = max(0, ns.bit_length() - MANTISSA - 1)
    return (shift << MANTISSA) + (ns >> shift)


def ns_of(code: int) -> int:
    """The time that ``code_of`` has rounded, at least."""
    shift = max(0, (code >> MANTISSA) - 1)
    return (code - (shift << MANTISSA)) << shift


def merged(salt: int, times: Iterable[tuple[int, int]]) -> Times:
    """One sketch of all these; ``salt`` is that of the round."""
    known: dict[int, int] = {}
    for rank, code in times:
        known[rank] = max(code, known.get(rank, 0))
    if len(known) > SAMPLE:
        slowest = sorted(known, key=lambda rank: (-known[rank], rank))[:SLOWEST]
        kept = {*sample(salt, known), *slowest}
        known = {rank: code for rank, code in known.items() if rank in kept}
    return tuple(sorted(known.items()))


def sample(salt: int, ranks: Iterable[int]) -> list[int]:
    """The ranks that chance takes from these in the round with this salt."""
    return sorted(ranks, key=lambda rank: _mixed(salt ^ (rank * 0x9E3779B97F4A7C15 & _WORD)))[:SAMPLE]


def _mixed(x: int) -> int:
    """SplitMix64's finaliser: every bit depends on every other."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _WORD
    return x ^ (x >> 31)
