"""Stacks recorded with py-spy from hanging Gloo ranks (torch 2.13.0): which of them wait for others?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scoutd.daemon.observe import frames

RECORDED: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "recorded" / "pyspy.json").read_text()
)


@pytest.mark.parametrize(
    ("name", "python_only", "native"),
    [
        ("allreduce", True, True),
        ("barrier", True, True),
        ("recv", True, True),
        ("obj", True, True),
        ("asyncwait", None, True),
        ("store", None, True),
        ("backward", None, True),
        ("sleep", None, False),
        ("spin", False, False),
    ],
)
def test_a_recorded_stack(name: str, python_only: bool | None, native: bool) -> None:
    assert frames.waits(RECORDED[name], native=False) is python_only
    assert frames.waits(RECORDED[f"{name}.native"], native=True) is native


def thread(*functions: tuple[str, str], os_id: int = 1, gil: bool = False) -> dict[str, Any]:
    """Functions innermost first; a file that ends in .so makes a frame native."""
    return {
        "pid": 1,
        "os_thread_id": os_id,
        "owns_gil": gil,
        "frames": [
            {"name": name, "filename": file, "line": 3, "module": file if file.endswith(".so") else None}
            for name, file in functions
        ],
    }


TORCH = "libtorch_cpu.so"
WAIT = ("pthread_cond_wait", "libc.so")
ENGINE = ("torch::autograd::Engine::thread_main", TORCH)
BACKWARD = ("_engine_run_backward", "/v/torch/autograd/graph.py")
USER = ("forward", "/home/user/train.py")


def test_user_code_below_a_reducer_is_no_wait() -> None:
    hook = thread(("time_sleep", "libpython.so"), USER, ("c10d::Reducer::finalize_backward", TORCH), BACKWARD)
    assert frames.waits([hook], native=True) is False


def test_an_engine_that_waits_for_its_threads_is_what_they_are() -> None:
    main = thread(WAIT, ENGINE, BACKWARD)
    waiting = thread(WAIT, ("c10d::Work::wait", TORCH), os_id=2)
    sleeping = thread(("clock_nanosleep", "libc.so"), USER, os_id=2)
    assert frames.waits([main, waiting], native=True) is True
    assert frames.waits([main, sleeping], native=True) is None


def test_an_engine_that_computes_is_no_wait() -> None:
    assert frames.waits([thread(("at::native::addmm", TORCH), ENGINE, BACKWARD)], native=True) is False


def test_a_device_synchronisation_cannot_tell() -> None:
    stuck = thread(("cuStreamSynchronize", "libcuda.so"), ("item", "/home/user/train.py"))
    assert frames.waits([stuck], native=True) is None
    group = thread(("poll", "libc.so"), ("ncclGroupEnd", "libnccl.so"), USER)
    assert frames.waits([group], native=True) is True


def test_the_shim_and_wrappers_are_looked_through() -> None:
    call = thread(
        ("intercepted", "/v/scoutd/shim/collectives.py"), ("all_reduce", f"/v{frames.DISTRIBUTED_FILE}"), USER
    )
    assert frames.waits([call], native=False) is True
    hook = thread(("before", "/v/scoutd/shim/hooks.py"), USER)
    assert frames.waits([hook], native=False) is None


def test_the_main_thread_has_the_pid() -> None:
    main, other = thread(USER), thread(USER, os_id=2)
    assert frames.main_thread([other, main]) is main
    assert frames.main_thread([other]) is None
    nameless = {"pid": 7, "os_thread_id": None, "thread_name": None}
    assert frames.main_thread([nameless]) is nameless
    assert frames.main_thread([nameless, nameless]) is None
    assert frames.main_thread([nameless, {**nameless, "thread_name": "MainThread"}]) is not None
    assert frames.waits([other], native=False) is None


def test_frames_are_bounded() -> None:
    deep = thread(*[("f" * 1000, "/home/user/train.py")] * 100)
    found = frames.frames_of(deep)
    assert len(found) == frames.MAX_FRAMES
    assert len(found[0].function) == frames.MAX_NAME


def test_an_answer_that_is_none_is_a_value_error() -> None:
    for text in ("", "{}", "[1]"):
        with pytest.raises(ValueError):  # noqa: PT011
            frames.parse(text)
