"""Whom the maker of a process group waits for, read from the call that the shim publishes for it.

``new_group`` is published as a call of a meeting of all ranks, because all have to call it; but it returns
once the members of the new group have come. Only with TORCH_DIST_INIT_BARRIER=1 it waits for everybody, which
the argument says at its end. Long lists of ranks are published as a hash: then it is not known for whom.
"""

from __future__ import annotations

from typing import Final

from scoutd.agent.evidence import Call

OPERATIONS: Final = frozenset({"new_group", "split_group"})
PREFIX: Final = "ranks="
EVERYBODY: Final = " all"


def members_of(argument: str) -> frozenset[int] | None:
    """The ranks of the group that is made; None where they are not told."""
    text = argument.removeprefix(PREFIX).removesuffix(EVERYBODY)
    parts = text.split(",")
    if not argument.startswith(PREFIX) or not all(part.isdecimal() for part in parts):
        return None
    return frozenset(map(int, parts))


def awaited(call: Call) -> frozenset[int] | None:
    """The ranks that the maker waits for; None for all of the meeting, and for calls of another kind."""
    if call.fingerprint.operation not in OPERATIONS:
        return None
    argument = call.fingerprint.argument or ""
    return None if argument.endswith(EVERYBODY) else members_of(argument)
