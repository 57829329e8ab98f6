"""What this machine and this user let an agent do: the checks of ``scoutd doctor``.

Each check is one fact with a remedy. A missing right makes a verdict poorer, never wrong, so nothing but a
place to publish in is necessary.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scoutd.daemon.config import DEFAULT_HTTP_PORT, DEFAULT_PORT, Config

LEAST_FREE_BYTES: Final = 64 << 20
"""A rank's file is under 200 kB; 64 MB is room for hundreds of ranks."""

CAP_SYS_PTRACE: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class Check:
    """``remedy`` is empty where nothing has to be done."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def checks(config: Config) -> Iterator[Check]:
    """Every check, in the order in which they matter."""
    yield _shared_memory(Path(config.observe.root))
    yield _pidfd()
    yield _py_spy()
    yield _ptrace()
    yield _core_files()
    yield from _ports(config)


def _shared_memory(root: Path) -> Check:
    place = next(p for p in (root, *root.parents) if p.exists())
    free = shutil.disk_usage(place).free
    writable = os.access(place, os.W_OK | os.X_OK)
    found = f"{place}: {free >> 20} MB free" + ("" if writable else ", not writable")
    remedy = "mount a larger tmpfs there (docker: --shm-size), or set SCOUTD_ROOT"
    return _check("shared memory", writable and free >= LEAST_FREE_BYTES, found, remedy)


def _pidfd() -> Check:
    opener: Callable[[int, int], int] | None = getattr(os, "pidfd_open", None)
    try:
        if opener is None:
            raise OSError(0, "this Python has no pidfd_open")
        os.close(opener(os.getpid(), 0))
    except OSError as error:
        remedy = "Linux 5.3 or newer; without it ends of processes are seen later, through the shim's lock"
        return Check("pidfd", False, f"no: {error.strerror}", remedy)
    return Check("pidfd", True, "ends of processes are seen at once")


def _py_spy() -> Check:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        return Check("py-spy", False, "not found", "pip install py-spy; without it verdicts have no stacks")
    return Check("py-spy", True, found)


def _ptrace() -> Check:
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    capable = bool(int(_status_field("CapEff") or "0", 16) & CAP_SYS_PTRACE)
    ok = capable or scope in ("", "0")
    if ok:
        found = "yes, with CAP_SYS_PTRACE" if capable else "yes, for processes of this user"
    else:
        found = f"no: kernel.yama.ptrace_scope is {scope} and CAP_SYS_PTRACE is missing"
    remedy = "give the agent CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0; else no stacks"
    return _check("may read stacks", ok, found, remedy)


def _core_files() -> Check:
    """A core dump of a large trainer keeps the dying process for minutes, and its end is seen that late."""
    limit = resource.getrlimit(resource.RLIMIT_CORE)[0]
    pattern = _read("/proc/sys/kernel/core_pattern") or "unknown"
    size = "off" if limit == 0 else "unlimited" if limit == resource.RLIM_INFINITY else f"up to {limit} bytes"
    remedy = (
        "" if limit == 0 else "an abort is seen only when its core is written; ulimit -c 0 if that is long"
    )
    return Check("core files", True, f"{size}, pattern {pattern}", remedy)


def _ports(config: Config) -> Iterable[Check]:
    agent = config.agent
    for name, port, default in (
        ("gRPC port", agent.port, DEFAULT_PORT),
        ("HTTP port", agent.http_port, DEFAULT_HTTP_PORT),
    ):
        free = port == 0 or _is_free(config.private_bind, port)
        found = f"{port} is free" if free else f"{port} is in use (by a running agent, perhaps)"
        setting = "agent.port" if default == DEFAULT_PORT else "agent.http_port"
        yield Check(name, free, found, "" if free else f"fine for that agent; another one needs {setting}")


def _is_free(bind: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError:
            return False
    return True


def _check(name: str, ok: bool, found: str, remedy: str) -> Check:
    return Check(name, ok, found, "" if ok else remedy)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _status_field(name: str) -> str:
    lines = _read("/proc/self/status").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "")
