"""Addresses of peers that the configuration names: a fixed list, and a DNS name that stands for many.

They are only seeds: an agent that was found tells of all others. The name (a headless service) is resolved
again and again, because pods come and go; a failure keeps what was found before and is a warning.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Final

from scoutd.daemon.errors import ConfigError
from scoutd.daemon.peer.address import join, parse

RESOLVE_S: Final = 15.0
MAX_ADDRESSES: Final = 64


class Directory:
    """``addresses`` is what is known now. ``default_port`` completes names without one."""

    def __init__(self, listed: str, name: str, default_port: int) -> None:
        """Raises ConfigError for an address that is none."""
        try:
            self._listed: Final = _listed(listed, default_port)
            self._name: Final = parse(name, default_port) if name else None
        except ValueError as error:
            raise ConfigError(f"peers.addresses or peers.dns: {error}") from error
        self._resolved: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self.warning = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._listed, *self._resolved)))

    def start(self) -> None:
        """The name, if there is one, is resolved from now on."""
        if self._name is not None:
            self._task = asyncio.get_running_loop().create_task(self._keep_resolving())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def resolve(self) -> None:
        """``addresses`` has what the name stands for now."""
        assert self._name is not None
        host, port = self._name
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self.warning = f"peers.dns = {host}: {error.strerror or error}"
            return
        self.warning = ""
        self._resolved = _distinct(str(entry[4][0]) for entry in found)
        self._resolved = tuple(join(each, port) for each in self._resolved)

    async def _keep_resolving(self) -> None:
        while True:
            await self.resolve()
            await asyncio.sleep(RESOLVE_S)


def _listed(text: str, default_port: int) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return _distinct(join(*parse(part, default_port)) for part in parts)


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))[:MAX_ADDRESSES]
