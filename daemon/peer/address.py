"""Addresses of agents: ``host:port``, IPv6 in brackets. Pure.

An address may come from a peer, so it is never handed to gRPC as it is: gRPC would take ``unix:`` or
``dns://server/`` in it for schemes.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")


def parse(text: str, default_port: int = 0) -> tuple[str, int]:
    """Host (IPv6 without brackets) and port.

    Args:
        default_port: Used where the text has no port; 0 requires one.

    Raises:
        ValueError: the text is no address; the message says what is wrong with it.
    """
    host, port = _split(text.strip())
    if not port and default_port:
        port = str(default_port)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    if not _is_ip(host) and not HOST.fullmatch(host):
        raise ValueError(f"{text!r} is not host:port; IPv6 is written [::1]:7641")
    return host, int(port)


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") > 1:  # IPv6 without brackets and port
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def target(text: str) -> str:
    """What gRPC connects to, with an explicit scheme. Raises ValueError for no address."""
    host, port = parse(text)
    if not _is_ip(host):
        return f"dns:///{host}:{port}"
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
