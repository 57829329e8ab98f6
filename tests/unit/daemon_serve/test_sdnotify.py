"""systemd notification over a real datagram socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from scoutd.daemon.sdnotify import Notifier
from tests.unit.daemon_serve.fakes import S


def server(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(path))
    made.setblocking(False)
    return made


def received(listener: socket.socket) -> list[str]:
    texts = []
    while True:
        try:
            texts.append(listener.recv(4096).decode())
        except BlockingIOError:
            return texts


def test_lifecycle_datagrams(tmp_path: Path) -> None:
    with server(tmp_path / "n") as listener:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
        notifier.ready("watching 2 jobs")
        notifier.reloading()
        notifier.stopping()
        first, second, third = received(listener)
    assert first == "READY=1\nSTATUS=watching 2 jobs"
    assert second.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert third == "STOPPING=1"


def test_watchdog_is_fed_at_a_third_of_its_period(tmp_path: Path) -> None:
    with server(tmp_path / "n") as listener:
        notifier = Notifier(
            {
                "NOTIFY_SOCKET": str(tmp_path / "n"),
                "WATCHDOG_USEC": "3000000",
                "WATCHDOG_PID": str(os.getpid()),
            }
        )
        for tenth in range(100, 125):
            notifier.feed(tenth * S // 10)
        assert received(listener) == ["WATCHDOG=1"] * 3


def test_watchdog_of_another_process_is_not_fed(tmp_path: Path) -> None:
    with server(tmp_path / "n") as listener:
        notifier = Notifier(
            {"NOTIFY_SOCKET": str(tmp_path / "n"), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
        )
        notifier.feed(100 * S)
        assert received(listener) == []


def test_without_systemd_nothing_happens_and_a_dead_socket_is_counted(tmp_path: Path) -> None:
    silent = Notifier({"WATCHDOG_USEC": "nonsense"})
    silent.ready("")
    silent.feed(100 * S)
    assert silent.sent_errors == 0
    lost = Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})
    lost.ready("")
    assert lost.sent_errors == 1
