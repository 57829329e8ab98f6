"""Which address this agent tells others: ``peers.advertise``, an interface's, or the way out of this host.

Machines have several networks (management, storage, RDMA), containers have addresses that nobody outside
reaches; so the choice can be made in the configuration, and what was chosen is tried from here once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from typing import Final

import psutil

from scoutd.daemon.errors import ConfigError
from scoutd.daemon.peer.address import parse

OUTSIDE: Final = (("10.255.255.255", socket.AF_INET), ("fd00::ffff", socket.AF_INET6))
"""Addresses of private networks. Nothing is sent: connecting a datagram socket only chooses a route."""

TRY_S: Final = 2.0


def choose(advertise: str, interface: str) -> tuple[str, int]:
    """Host and port to advertise; port 0: that on which we listen.

    Raises:
        ConfigError: the configured address is none, or the interface does not exist or has none.
    """
    if advertise:
        try:
            return parse(advertise)
        except ValueError:
            return _host_alone(advertise)
    if interface:
        return _of_interface(interface), 0
    return way_out(), 0


def is_local(host: str) -> bool:
    """A socket can be bound to this address here."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.bind(found[4])
    except OSError:
        return False
    return True


async def reached(host: str, port: int) -> str:
    """Why the address cannot be reached from this host itself; empty if it can."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), TRY_S)
    except asyncio.TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ""


def _host_alone(text: str) -> tuple[str, int]:
    try:
        host, _ = parse(text, 1)
    except ValueError as error:
        raise ConfigError(f"peers.advertise: {error}") from error
    return host, 0


def _of_interface(name: str) -> str:
    """Its first IPv4 address, else its first IPv6 address that is not link-local."""
    known = psutil.net_if_addrs()
    if name not in known:
        raise ConfigError(
            f"peers.interface = {name!r}: no such interface; there are {', '.join(sorted(known))}"
        )
    addresses = [(each.family, each.address.partition("%")[0]) for each in known[name]]
    for family in (socket.AF_INET, socket.AF_INET6):
        for found, address in addresses:
            if found == family and not ipaddress.ip_address(address).is_link_local:
                return address
    raise ConfigError(f"peers.interface = {name!r} has no address that others could reach")


def way_out() -> str:
    """The address that this host speaks from; loopback on a host without a network."""
    for outside, family in OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside, 9))
                host: str = probe.getsockname()[0]
        except OSError:
            continue
        return host.partition("%")[0]
    return "127.0.0.1"
