"""Optional mutual TLS from three files, taken anew when they change.

Both sides show a certificate that the authority signed. The server asks for the newest files at every
handshake; the client opens new channels after a change (``epoch``). A set of files that cannot be read, or is
half written, leaves the old one in force and says so in ``warning``.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from scoutd.daemon.errors import ConfigError
from scoutd.daemon.peer.client import Plain

LOOK_S: Final = 1.0
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files. ``name``: what peers' certificates are checked for, where their address is not in them;
    empty: their address."""

    certificate: Path
    key: Path
    authority: Path
    name: str = ""

    def stamp(self) -> Stamp:
        return tuple(
            (found.st_mtime_ns, found.st_size, found.st_ino)
            for found in (os.stat(path) for path in (self.certificate, self.key, self.authority))
        )

    def read(self) -> tuple[bytes, bytes, bytes]:
        certificate, key, authority = (
            path.read_bytes() for path in (self.certificate, self.key, self.authority)
        )
        for path, content in ((self.certificate, certificate), (self.key, key), (self.authority, authority)):
            if b"-----BEGIN" not in content or b"-----END" not in content:
                raise ValueError(f"{path} is not PEM")
        return certificate, key, authority


class Credentials:
    """The newest readable set of files."""

    def __init__(self, files: Files) -> None:
        """Raises ConfigError if the files cannot be used now."""
        self._epoch = 1
        self.warning = ""
        self._files: Final = files
        try:
            self._stamp = files.stamp()
            self._content = files.read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"peers.tls_*: {error}") from error
        self._looked = time.monotonic()
        self._served = self._epoch

    @property
    def epoch(self) -> int:
        """Grows when the files have changed, this moment's look included."""
        self.refresh()
        return self._epoch

    def server(self) -> grpc.ServerCredentials:
        """For a port; every handshake uses the files as they are then."""
        # The stub knows no None from the fetcher; gRPC takes it for "unchanged".
        fetch: Any = self._fetch
        return grpc.dynamic_ssl_server_credentials(self._configuration(), fetch, True)

    def channel(self, at: str, options: tuple[tuple[str, Any], ...]) -> grpc.aio.Channel:
        self.refresh()
        certificate, key, authority = self._content
        if self._files.name:
            options = (*options, ("grpc.ssl_target_name_override", self._files.name))
        return grpc.aio.secure_channel(
            at, grpc.ssl_channel_credentials(authority, key, certificate), options=options
        )

    def refresh(self) -> bool:
        """True if the files had changed and are now in force. Looks at most once in ``LOOK_S``."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return False
        self._looked = now
        try:
            stamp = self._files.stamp()
            if stamp == self._stamp:
                return False
            self._content = self._files.read()
        except (OSError, ValueError) as error:
            self.warning = f"TLS files were not reloaded, the old ones stay: {error}"
            return False
        self._stamp, self.warning = stamp, ""
        self._epoch += 1
        return True

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """None keeps what the handshake before used."""
        self.refresh()
        if self._served == self._epoch:
            return None
        self._served = self._epoch
        return self._configuration()

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, authority = self._content
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


def security(files: Files | None) -> Credentials | Plain:
    """Plain channels where there are no files."""
    return Credentials(files) if files is not None else Plain()
