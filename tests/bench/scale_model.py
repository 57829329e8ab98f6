"""Push-pull as bits: who holds whose report, for clusters too large to simulate.

Row i of the matrix says whose reports agent i holds. In a round every agent, in random order, exchanges with
``fanout`` random partners: columns of all nodes one way, of those that differ back, then the reports that
either side lacks, at most as many as a body carries each way. All reports are published at once, as in a job
that stands still.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.bench.scale_cluster import Sizes


@dataclass(frozen=True)
class Spread:
    """``rounds`` until everybody holds everything; bytes sent per agent, columns and reports apart."""

    rounds: int
    column_bytes: int
    report_bytes: int


def spread(nodes: int, fanout: int, how_large: Sizes, seed: int = 1, most_rounds: int = 500) -> Spread:
    rng = np.random.default_rng(seed)
    held = np.packbits(np.eye(nodes, dtype=np.uint8), axis=1)
    counts = np.ones(nodes, dtype=np.int64)
    columns = reports = rounds = 0
    while counts.min() < nodes and rounds < most_rounds:
        rounds += 1
        for one in rng.permutation(nodes):
            for other in rng.integers(0, nodes, fanout):
                if one == other:
                    continue
                moved, differ = _exchange(held, counts, int(one), int(other), how_large.reports_in_a_body)
                columns += nodes * how_large.row + differ * how_large.some
                reports += moved
    each = how_large.report + how_large.mark
    return Spread(rounds, columns // nodes, reports * each // nodes)


def _exchange(held: np.ndarray, counts: np.ndarray, one: int, other: int, most: int) -> tuple[int, int]:
    """Reports moved, and nodes about which the two differed."""
    differ = held[one] ^ held[other]
    if not differ.any():
        return 0, 0
    union = held[one] | held[other]
    total = int(np.bitwise_count(union).sum())
    for agent in (one, other):
        lacks = total - int(counts[agent])
        if lacks > most:
            wanted = np.flatnonzero(np.unpackbits(union & ~held[agent]))[:most]
            bits = np.zeros(held.shape[1] * 8, dtype=np.uint8)
            bits[wanted] = 1
            held[agent] |= np.packbits(bits)
        else:
            held[agent] = union
    before = int(counts[one]) + int(counts[other])
    counts[one] = min(total, int(counts[one]) + most)
    counts[other] = min(total, int(counts[other]) + most)
    return int(counts[one]) + int(counts[other]) - before, int(np.bitwise_count(differ).sum())
