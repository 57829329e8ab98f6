"""Compiles the kernel of the lane sum for GPUs that need not be there; prints one JSON object: target → the
sizes of what came out. Integer arguments below 2^31 and above are two different kernels."""

from __future__ import annotations

import json
import warnings

warnings.simplefilter("ignore")

from triton import compiler  # type: ignore[import-untyped]
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]

from scoutd.shim.signature_triton import BLOCK, _partial_sums


def main() -> None:
    found: dict[str, dict[str, int]] = {}
    for capability, width in ((80, "i32"), (90, "i64")):
        types = {"lanes": "*i64", "partial": "*i64", "count": width, "first": width, "programs": "i32"}
        source = compiler.ASTSource(
            fn=_partial_sums, signature=types | {"BLOCK": "constexpr"}, constexprs={"BLOCK": BLOCK}
        )
        compiled = compiler.compile(source, target=GPUTarget("cuda", capability, 32))
        found[f"sm_{capability} {width}"] = {name: len(text) for name, text in compiled.asm.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
