"""Tells systemd how the agent lives (``Type=notify``, ``WatchdogSec``): datagrams, no dependency.

The watchdog is fed by the main loop's own progress and by nothing else: a timer of its own would tell systemd
that all is well while the loop hangs. Without ``NOTIFY_SOCKET`` every call does nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from scoutd.daemon.clock import NS_PER_S, monotonic_ns


class Notifier:
    """The service manager's socket. ``sent_errors`` counts datagrams that could not be sent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address: Final = _address(environ.get("NOTIFY_SOCKET", ""))
        self._period_ns: Final = _watchdog_period_ns(environ)
        self._fed_ns = 0
        self.sent_errors = 0

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """``Type=notify-reload`` wants the monotonic time in the same datagram."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def feed(self, now_ns: int) -> None:
        """The watchdog is fed at most every third of its period, whatever the caller's pace."""
        if self._period_ns and now_ns - self._fed_ns >= self._period_ns // 3:
            self._fed_ns = now_ns
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError:
            self.sent_errors += 1


def _address(path: str) -> str | None:
    """None without a socket; a leading @ means the abstract namespace."""
    if not path or path[0] not in "@/":
        return None
    return "\0" + path[1:] if path[0] == "@" else path


def _watchdog_period_ns(environ: Mapping[str, str]) -> int:
    """0 where no watchdog is wanted, or it is meant for another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0
    try:
        return max(0, int(environ.get("WATCHDOG_USEC", "0"))) * (NS_PER_S // 1_000_000)
    except ValueError:
        return 0
