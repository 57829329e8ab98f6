"""A rank that is inside ``init_process_group``: until it returns there is no rank to attach to.

The call waits for all ranks, so a rank that does not come is waited for where nobody looks. Before the call
the rank's file is made, as it would be right after it, with a header that names rank and world size and no
backend yet: that is how the agent knows that the call has not returned. The session takes the file over; if
the call fails, it is removed. Standard library only: torch may not be imported for the shim's sake.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from scoutd.proto import shm
from scoutd.shim.shmfile import ShmFile, root_folder, start_ticks

PARAMETERS: Final = ("backend", "init_method", "timeout", "world_size", "rank")
_prepared: ShmFile | None = None
_owner = 0


def begin(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """The agent can see that this rank waits for the others; nothing happens if its rank is not known."""
    global _prepared, _owner
    given = {**dict(zip(PARAMETERS, args)), **kwargs}  # noqa: B905  later arguments are not looked at
    rank, size = _number(given, "rank", "RANK"), _number(given, "world_size", "WORLD_SIZE")
    if rank < 0 or size <= rank or _prepared is not None:
        return
    file = ShmFile(root_folder())
    file.publish(shm.HEADER, 0, _header(rank, size))
    _prepared, _owner = file, os.getpid()


def take() -> ShmFile | None:
    """The file, which is the caller's now; None where none was made by this process."""
    global _prepared
    file, _prepared = _prepared, None
    return file if _owner == os.getpid() else None


def withdraw() -> None:
    """The call has failed, or nobody takes the file."""
    file = take()
    if file is not None:
        file.remove()
        file.close()


def _number(given: Mapping[str, Any], name: str, variable: str) -> int:
    """The argument, else what the environment says, else -1."""
    value = given.get(name, -1)
    if isinstance(value, int) and value >= 0:
        return value
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else -1


def _header(rank: int, size: int) -> shm.Header:
    return shm.Header(
        pid=os.getpid(),
        start_ticks=start_ticks(),
        attached_ns=time.monotonic_ns(),
        generation=0,
        uid=os.getuid(),
        rank=rank,
        world_size=size,
        local_rank=_number({}, "", "LOCAL_RANK"),
        local_world_size=max(0, _number({}, "", "LOCAL_WORLD_SIZE")),
        job="",
        run=os.environ.get("SCOUTD_RUN", ""),
        launcher_id="",
        node=socket.gethostname(),
        device="cpu",
        backend="",
        python=platform.python_version(),
        torch="",
    )
