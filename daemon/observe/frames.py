"""py-spy's JSON → a stack, and whether its innermost frames are a distributed wait. Pure.

``waits`` is True where the main thread stands inside a collective's or store's wait, False where it
certainly does not, None where the stack cannot tell: a Python-only stack ends at the call into C++, and
below ``_engine_run_backward`` or ``h.wait()`` lies what it does not show. Frames of torch's own wrappers and
of the shim are looked through. Names of NCCL and CUDA come from their sources; no such stack was recorded.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from scoutd.agent.evidence import Frame
from scoutd.proto import shm

MAX_FRAMES: Final = 40
MAX_NAME: Final = 200

NATIVE_WAIT: Final = re.compile(
    r"c10d::(\w+::)*(\w*[wW]ait\w*|finalize_backward|monitoredBarrier|synchronize\w*)\b"
    r"|c10d::(TCPStore|PrefixStore|FileStore|HashStore|Store|detail::(TCPClient|Socket\w*))::"
    r"|^gloo::|^p?nccl[A-Z]|^P?MPI_[A-Z]"
)
ENGINE_WAIT: Final = re.compile(
    r"^torch::autograd::(ReadyQueue::pop|Engine::thread_main)|^c10::ivalue::Future::wait"
)
SYSTEM: Final = re.compile(r"^(0x[0-9a-f]+$|pthread_|__|std::|futex|syscall)")
DEVICE_WAIT: Final = re.compile(r"^(cuda|cu|hip)(\w*Synchronize$|Memcpy|EventQuery)")
SLEEPING_LINE: Final = re.compile(r"\bsleep\s*\(")

TRANSPARENT: Final = (
    "/torch/distributed/c10d_logger.py",
    "/torch/_ops.py",
    "/torch/utils/_contextlib.py",
    "/torch/_dynamo/eval_frame.py",
    "/torch/_dynamo/external_utils.py",
)
SHIM: Final = re.compile(r"(^|/)(scoutd/)?shim/[^/]+\.py$")
SHIM_FOLDER: Final = str(Path(shm.__file__).parent.parent / "shim") + "/"
"""Where this build's shim lives, in a checkout and in site-packages alike."""

DISTRIBUTED_FILE: Final = "/torch/distributed/distributed_c10d.py"
DISTRIBUTED_CALL: Final = re.compile(
    r"^(all_reduce|broadcast|reduce|all_gather|gather|scatter|reduce_scatter|all_to_all)"
    r"(_into_tensor|_tensor|_single|_coalesced)?$|^(monitored_)?barrier$|^(send|recv|wait)$"
)
WAIT_FUNCTION: Final = re.compile(r"(^|[._])(wait|wait_tensor|wait_for_\w+|barrier|store_based_barrier)$")


def main_thread(dump: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The thread whose id is the process's, else the one named MainThread, else the only one; None if there
    is none of these. Of a Python 3.10 the ids are not known unless the process is paused."""
    for thread in dump:
        if thread.get("os_thread_id") == thread.get("pid"):
            return thread
    alone = dump[0] if len(dump) == 1 and dump[0].get("os_thread_id") is None else None
    return next((t for t in dump if t.get("thread_name") == "MainThread"), alone)


def parse(text: str) -> list[dict[str, Any]]:
    """py-spy's answer; raises ValueError where it is none."""
    dump = json.loads(text)
    if not isinstance(dump, list) or not all(isinstance(thread, dict) for thread in dump):
        raise ValueError("not a list of threads")
    return dump


def frames_of(thread: dict[str, Any]) -> tuple[Frame, ...]:
    """Innermost first, bounded in number and length; without the shim's own frames."""
    frames = (_frame(raw) for raw in thread.get("frames", ())[: 2 * MAX_FRAMES])
    return tuple(f for f in frames if not f.file.startswith(SHIM_FOLDER))[:MAX_FRAMES]


def shape_of(thread: dict[str, Any]) -> int:
    """A number that changes when the thread's (function, line) pairs do."""
    return hash(tuple((f.get("name"), f.get("line")) for f in thread.get("frames", ())))


def waits(dump: list[dict[str, Any]], native: bool) -> bool | None:
    """Is the main thread inside a distributed wait? None: the stack cannot tell."""
    main = main_thread(dump)
    if main is None or not main.get("frames"):
        return None
    verdict = _waits_thread(main, native)
    if verdict is False and native and _engine_waits(frames_of(main)):
        # The autograd engine runs on threads of its own where there is a GPU: ask those.
        others = [_waits_thread(t, native) for t in dump if t is not main]
        return True if True in others else None
    return verdict


def innermost_user(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost Python frame, looking through wrappers."""
    return next((f for f in frames if not f.native and not _transparent(f)), None)


def _waits_thread(thread: dict[str, Any], native: bool) -> bool | None:
    frames = frames_of(thread)
    below = _native_part(frames)
    if any(NATIVE_WAIT.search(frame.function) for frame in below):
        return True
    python = innermost_user(frames)
    if python is not None and _is_distributed(python):
        return True
    if thread.get("owns_gil"):
        return False
    if not native:
        return None
    return None if any(DEVICE_WAIT.search(frame.function) for frame in below) else False


def _native_part(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The native frames inside of the innermost Python frame."""
    count = next((k for k, frame in enumerate(frames) if not frame.native), len(frames))
    return frames[:count]


def _engine_waits(frames: tuple[Frame, ...]) -> bool:
    """The innermost frame above the C library is the autograd engine's own wait for its threads."""
    own = next((f for f in _native_part(frames) if not SYSTEM.search(f.function)), None)
    return own is not None and ENGINE_WAIT.search(own.function) is not None


def _transparent(frame: Frame) -> bool:
    return frame.file.endswith(TRANSPARENT) or SHIM.search(frame.file) is not None


def _is_distributed(frame: Frame) -> bool:
    """A Python function of torch.distributed that blocks until others arrive."""
    name = frame.function.rpartition(".")[2]
    if frame.file.endswith(DISTRIBUTED_FILE):
        return DISTRIBUTED_CALL.search(name) is not None or WAIT_FUNCTION.search(name) is not None
    return "/torch/distributed/" in frame.file and WAIT_FUNCTION.search(name) is not None


def _frame(raw: dict[str, Any]) -> Frame:
    file = str(raw.get("filename") or "")
    native = bool(raw.get("module"))
    line = raw.get("line")
    name = str(raw.get("name") or "?")
    return Frame(name[:MAX_NAME], file[-4 * MAX_NAME :], line if isinstance(line, int) else 0, native)
