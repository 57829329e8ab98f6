"""The kernel of the lane sum under Triton's interpreter, beside plain torch and beside plain Python.

A program of its own: Triton decides at its import, for the whole process, whether it interprets. The last
line is JSON: per case [what, kernel, plain torch, plain Python].
"""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from scoutd.shim import signature, signature_lanes, signature_triton

MASK = (1 << 64) - 1


def finalise(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def dumb(tensor: torch.Tensor) -> int:
    """The definition, word for word."""
    data = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())
    data += bytes(-len(data) % 8)
    lanes = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    return (
        sum(finalise(x ^ finalise((i + 1) * 0x9E3779B97F4A7C15 & MASK)) for i, x in enumerate(lanes)) & MASK
    )


def cases() -> dict[str, torch.Tensor]:
    chance = torch.Generator().manual_seed(3)
    of = {
        f"{n} bytes": torch.randint(0, 256, (n,), generator=chance, dtype=torch.uint8)
        for n in (0, 1, 7, 8, 9, 63)
    }
    block = signature_triton.BLOCK
    for lanes in (block - 1, block, block + 1, 5 * block + 3):
        of[f"{lanes} lanes"] = torch.randn(2 * lanes, generator=chance)
    of["bfloat16, transposed"] = torch.randn(33, 65, generator=chance).bfloat16().t()
    of["begins between lanes"] = of["63 bytes"][3:]
    of["ones"] = torch.full((16,), -1, dtype=torch.int64)
    return of


def main() -> None:
    signature_triton.PROGRAMS = 2  # type: ignore[misc]  # so that programs loop
    found = []
    for what, tensor in cases().items():
        kernel = signature_lanes.lanes_digest(tensor, signature_triton.lane_sum)
        plain = signature_lanes.lanes_digest(tensor)
        found.append([what, *(digest.item() % (1 << 64) for digest in (kernel, plain)), dumb(tensor)])
    assert signature.scheme_of(found) == signature.SCHEME_XXH3
    print(json.dumps(found))


if __name__ == "__main__":
    main()
