"""Did the kernel kill a rank for memory? Counted by its cgroup, claimed once per kill.

The cgroup's path is taken while the process lives. ``oom_kill`` counts every process that the kernel
killed there, so n kills explain n ranks that died by SIGKILL, in the order of their deaths; the launcher's
own SIGKILLs that follow find no kill left to claim.
"""

from __future__ import annotations

from typing import Final

from scoutd.daemon.observe.procstat import read_text


class OomLedger:
    """Kills per counter file: those before the first look are not claimed by anybody."""

    def __init__(self) -> None:
        self._accounted: Final[dict[str, int]] = {}

    def watch(self, pid: int) -> str:
        """The counter file of the process's cgroup, empty where there is none; its count starts now."""
        for path in _counter_paths(read_text(f"/proc/{pid}/cgroup") or ""):
            count = _kills(path)
            if count is not None:
                self._accounted.setdefault(path, count)
                return path
        return ""

    def claim(self, path: str) -> bool | None:
        """True for one SIGKILLed rank per counted kill, None where nothing is known."""
        count = _kills(path) if path else None
        if count is None or count <= self._accounted.get(path, count):
            return None
        self._accounted[path] += 1
        return True


def _counter_paths(text: str) -> list[str]:
    """Candidates from /proc/PID/cgroup: version 2 first, then version 1's memory controller."""
    paths: list[str] = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        path = "" if path == "/" else path
        if number == "0" and not controllers:
            paths.insert(0, f"/sys/fs/cgroup{path}/memory.events")
        elif "memory" in controllers.split(","):
            paths.append(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    return paths


def _kills(path: str) -> int | None:
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill" and value.isdecimal():
            return int(value)
    return None
