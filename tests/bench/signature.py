"""What the signature misses, and how fast it is: bit flips, sign pairs and swaps; GB/s on one core.

``missed_single_bit``: every single-bit flip of an f32 and of a bf16 tensor of 64 Ki elements, and 10⁶ random
ones at 1 Mi elements. ``missed_double``: 10⁵ random pairs of bits at 1 Mi; ``missed_sign_pairs``: 10⁵ pairs
of sign bits; ``missed_swaps``: 10⁵ exchanges of two unequal elements. For the lane sum, which adds up,
``lanes_missed_double`` counts *all* pairs of single-bit flips of 64 Ki elements whose changes cancel.
``--json`` prints one JSON object as the last line; ``--quick`` takes a hundredth of everything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from scoutd.shim.signature import signature
from scoutd.shim.signature_lanes import mixed

SMALL, LARGE = 1 << 16, 1 << 20
Change = tuple[tuple[int, int], ...]
"""(element, bits to flip in it), some times over."""


def tensor(elements: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Random values, and the same memory as integers of the same width."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(elements)).to(dtype)
    return values, values.view(torch.int16 if dtype.itemsize == 2 else torch.int32)


def missed(values: torch.Tensor, bits: torch.Tensor, changes: Iterator[Change]) -> int:
    """How many of the changes leave the signature as it was. Each is made in place and undone."""
    healthy, count = signature(values), 0
    for change in changes:
        for at, mask in change:
            bits[at] ^= mask
        count += signature(values) == healthy
        for at, mask in change:
            bits[at] ^= mask
    assert signature(values) == healthy
    return count


def mask(bit: int, width: int) -> int:
    """As a signed integer of that width."""
    return -(1 << bit) if bit == width - 1 else 1 << bit


def every_bit(elements: int, width: int, step: int) -> Iterator[Change]:
    return (((n // width, mask(n % width, width)),) for n in range(0, elements * width, step))


def random_bits(chance: random.Random, number: int, flips: int) -> Iterator[Change]:
    for _ in range(number):
        places = chance.sample(range(LARGE * 32), flips)
        yield tuple((place // 32, mask(place % 32, 32)) for place in places)


def sign_pairs(chance: random.Random, number: int) -> Iterator[Change]:
    for _ in range(number):
        yield tuple((at, mask(31, 32)) for at in chance.sample(range(LARGE), 2))


def swaps(chance: random.Random, bits: torch.Tensor, number: int) -> Iterator[Change]:
    for _ in range(number):
        one, other = chance.sample(range(LARGE), 2)
        difference = int(bits[one]) ^ int(bits[other])
        if difference:
            yield (one, difference), (other, difference)


def lanes_missed_double(elements: int) -> int:
    """Pairs of single-bit flips in different lanes whose changes of the lane sum cancel, among all pairs."""
    lanes = torch.randn(elements, generator=torch.Generator().manual_seed(1)).view(torch.int64)
    healthy = mixed(lanes, 0)
    changes = torch.cat([mixed(lanes ^ mask(bit, 64), 0) - healthy for bit in range(64)])
    return int(torch.isin(-changes, changes).sum()) // 2


def gb_s(mib: int) -> float:
    """The best of a few passes: what else runs on the machine is not the signature's cost."""
    values = torch.randn(mib << 18)
    best = float("inf")
    for _ in range(max(5, 512 // mib)):
        started = time.perf_counter_ns()
        signature(values)
        best = min(best, time.perf_counter_ns() - started)
    return round(values.nbytes / best, 2)


def measure(share: int, tell: Callable[[str], None]) -> dict[str, float]:
    chance = random.Random(1)
    single = 0
    for dtype, width in ((torch.float32, 32), (torch.bfloat16, 16)):
        single += missed(*tensor(SMALL, dtype), every_bit(SMALL, width, share))
        tell(f"single bits of {dtype}: {single} missed so far")
    large = tensor(LARGE, torch.float32)
    single += missed(*large, random_bits(chance, 1_000_000 // share, 1))
    tell(f"random single bits: {single} missed so far")
    found: dict[str, float] = {"missed_single_bit": single}
    found["missed_double"] = missed(*large, random_bits(chance, 100_000 // share, 2))
    found["missed_sign_pairs"] = missed(*large, sign_pairs(chance, 100_000 // share))
    found["missed_swaps"] = missed(*large, swaps(chance, large[1], 100_000 // share))
    found["lanes_missed_double"] = lanes_missed_double(SMALL)
    return found | {f"gb_s_{mib}mib": gb_s(mib) for mib in (1, 64, 512)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="last line of output is one JSON object")
    parser.add_argument("--quick", action="store_true", help="a hundredth of all changes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(101 if args.quick else 1, lambda text: print(text, flush=True))
    for name, value in found.items():
        print(f"{name:22} {value:8}")
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
