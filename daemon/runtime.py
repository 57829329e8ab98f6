"""Where an agent and its local clients meet: the runtime directory, the sockets, the endpoint file.

The runtime directory is ``$SCOUTD_RUNTIME_DIR``, else ``/run/scoutd`` for root, else
``$XDG_RUNTIME_DIR/scoutd``, else ``/tmp/scoutd-<uid>``; mode 0700 and owned by this user, because whoever can
reach the socket may control the agent. A node agent listens on ``agent.sock`` in it, the private agent of
``scoutd run`` on ``run-<tag>.sock``. Beside its socket a ready agent leaves ``<socket>.json`` (its
*endpoint*: pid, ports, node) and removes both when it stops. A socket that nobody answers on is stale: its
agent was killed. Connecting is the only test that cannot be fooled by a reused pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from scoutd.daemon.errors import ConfigError, LocalError

NODE_SOCKET: Final = "agent.sock"
MAX_SOCKET_PATH: Final = 107
"""``sun_path`` has 108 bytes with its NUL; a longer path fails in bind with a text that names nothing."""

CONNECT_TIMEOUT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a ready agent. ``run`` is the tag of its ``scoutd run``, empty for a node agent."""

    socket: Path
    pid: int
    port: int
    http_port: int
    node: str
    run: str = ""

    @property
    def target(self) -> str:
        """The gRPC target of the Unix socket."""
        return f"unix:{self.socket}"


def runtime_directory() -> Path:
    """The path of the runtime directory, which may not exist yet."""
    if chosen := os.environ.get("SCOUTD_RUNTIME_DIR"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/scoutd")
    if session := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(session) / "scoutd"
    return Path(f"/tmp/scoutd-{os.getuid()}")


def ensure_directory(directory: Path | None = None) -> Path:
    """``directory`` (default: the runtime directory) exists, is ours, and nobody else writes to it.

    An existing one is never made stricter here: it may be a directory that others depend on.

    Raises:
        LocalError: it cannot be made, it belongs to somebody else, or others may write to it.
    """
    directory = directory or runtime_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise LocalError(f"runtime directory {directory}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise LocalError(f"runtime directory {directory}: not a directory")
    if found.st_uid != os.geteuid():
        raise LocalError(f"runtime directory {directory}: belongs to uid {found.st_uid}, not to this user")
    if found.st_mode & 0o022:
        raise LocalError(f"runtime directory {directory}: others may write to it; chmod 700 {directory}")
    return directory


def node_socket() -> Path:
    return runtime_directory() / NODE_SOCKET


def run_socket(tag: str) -> Path:
    """The socket of the private agent of the ``scoutd run`` with this tag."""
    return runtime_directory() / f"run-{tag}.sock"


def check_socket_path(path: Path) -> None:
    """Raises ConfigError if the kernel cannot bind to a path this long."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise ConfigError(
            f"socket: {path} has {length} bytes, at most {MAX_SOCKET_PATH} are possible; "
            "set SCOUTD_RUNTIME_DIR to a shorter directory"
        )


def answers(path: Path) -> bool:
    """True if a process accepts connections on this Unix socket now; False for none, stale or foreign."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def endpoint_file(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def write_endpoint(endpoint: Endpoint) -> None:
    """The endpoint file is complete or absent at any time: written beside and renamed."""
    target = endpoint_file(endpoint.socket)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    fields = asdict(endpoint) | {"socket": str(endpoint.socket)}
    draft.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    draft.chmod(0o600)
    draft.replace(target)


def read_endpoint(path: Path) -> Endpoint | None:
    """What the agent behind this socket wrote; None where there is no file or it is not one of ours."""
    try:
        fields = json.loads(endpoint_file(path).read_text(encoding="utf-8"))
        return Endpoint(
            socket=path,
            pid=int(fields["pid"]),
            port=int(fields["port"]),
            http_port=int(fields["http_port"]),
            node=str(fields["node"]),
            run=str(fields.get("run", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_endpoint(path: Path) -> None:
    """Neither the socket nor its endpoint file exists."""
    for file in (endpoint_file(path), path):
        with contextlib.suppress(OSError):
            file.unlink()


def live_endpoints() -> list[Endpoint]:
    """Every ready agent of this user that answers: the node agent first, then private ones, newest first.

    Stale sockets are passed over, not removed: their owner may be about to bind.
    """
    found = []
    for file in _by_age(runtime_directory()):
        path = file.with_name(file.name.removesuffix(".json"))
        endpoint = read_endpoint(path)
        if endpoint is not None and answers(path):
            found.append(endpoint)
    return sorted(found, key=lambda endpoint: bool(endpoint.run))


def _by_age(directory: Path) -> list[Path]:
    """The endpoint files of a directory, newest first; empty where it cannot be read."""
    dated = []
    try:
        for file in directory.glob("*.sock.json"):
            with contextlib.suppress(OSError):
                dated.append((file.stat().st_mtime_ns, file))
    except OSError:
        return []
    return [file for _, file in sorted(dated, reverse=True)]
