"""Runtime directory, sockets and endpoint files."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from scoutd.daemon import runtime
from scoutd.daemon.errors import ConfigError, LocalError
from scoutd.daemon.runtime import Endpoint


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCOUTD_RUNTIME_DIR", str(tmp_path / "run"))
    return runtime.ensure_directory()


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(8)
    return server


def test_directory_is_closed_to_others(directory: Path) -> None:
    assert directory.stat().st_mode & 0o777 == 0o700


def test_directory_that_others_write_is_refused_and_left_alone(directory: Path) -> None:
    directory.chmod(0o777)
    with pytest.raises(LocalError, match="others may write"):
        runtime.ensure_directory()
    assert directory.stat().st_mode & 0o777 == 0o777


def test_directory_that_is_a_link_or_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(LocalError):
            runtime.ensure_directory(tmp_path / name)


def test_choice_of_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCOUTD_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setattr("os.geteuid", lambda: 7)
    monkeypatch.setattr("os.getuid", lambda: 7)
    assert runtime.runtime_directory() == Path("/run/user/7/scoutd")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert runtime.runtime_directory() == Path("/tmp/scoutd-7")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert runtime.runtime_directory() == Path("/run/scoutd")


def test_endpoint_round_trip_and_removal(directory: Path) -> None:
    endpoint = Endpoint(runtime.node_socket(), 12, 34, 56, "n0")
    runtime.write_endpoint(endpoint)
    assert runtime.read_endpoint(endpoint.socket) == endpoint
    runtime.remove_endpoint(endpoint.socket)
    assert runtime.read_endpoint(endpoint.socket) is None
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"pid": "x"}'])
def test_foreign_endpoint_file_is_absence(directory: Path, text: str) -> None:
    runtime.endpoint_file(runtime.node_socket()).write_text(text)
    assert runtime.read_endpoint(runtime.node_socket()) is None
    assert runtime.live_endpoints() == []


def test_stale_socket_does_not_answer(directory: Path) -> None:
    path = runtime.run_socket("a")
    assert not runtime.answers(path)
    server = listen(path)
    assert runtime.answers(path)
    server.close()
    assert path.exists()
    assert not runtime.answers(path)


def test_live_endpoints_puts_the_node_agent_first(directory: Path) -> None:
    servers = []
    for path, run in ((runtime.run_socket("a"), "a"), (runtime.node_socket(), "")):
        servers.append(listen(path))
        runtime.write_endpoint(Endpoint(path, 1, 2, 3, "n0", run))
    runtime.write_endpoint(Endpoint(runtime.run_socket("dead"), 1, 2, 3, "n0", "dead"))
    assert [each.run for each in runtime.live_endpoints()] == ["", "a"]
    for server in servers:
        server.close()


def test_long_socket_path_is_refused_before_bind() -> None:
    runtime.check_socket_path(Path("/" + "x" * 106))
    with pytest.raises(ConfigError, match="at most 107"):
        runtime.check_socket_path(Path("/" + "x" * 107))
