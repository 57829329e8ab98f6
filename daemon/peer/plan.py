"""What the configuration says about peers, as one value; ``Neighbours`` follows it or refuses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scoutd.daemon.config import DEFAULT_PORT, PeersSection
from scoutd.daemon.errors import ConfigError
from scoutd.daemon.peer.tls import Files


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """See ``config.PeersSection``. ``default_port`` completes addresses without one."""

    advertise: str = ""
    interface: str = ""
    addresses: str = ""
    dns: str = ""
    key_file: str = ""
    tls: Files | None = None
    default_port: int = DEFAULT_PORT


def peer_plan(peers: PeersSection, port: int) -> PeerPlan:
    """The plan. ``port`` is our own gRPC port, 0 for a free one: others are expected to have the same.

    Raises:
        ConfigError: some of the TLS files are named and some are not.
    """
    return PeerPlan(
        advertise=peers.advertise,
        interface=peers.interface,
        addresses=peers.addresses,
        dns=peers.dns,
        key_file=peers.key_file,
        tls=_files(peers),
        default_port=port or DEFAULT_PORT,
    )


def _files(peers: PeersSection) -> Files | None:
    names = (peers.tls_cert, peers.tls_key, peers.tls_ca)
    if not any(names):
        return None
    if not all(names):
        raise ConfigError("peers.tls_cert, peers.tls_key and peers.tls_ca go together: all three or none")
    return Files(Path(peers.tls_cert), Path(peers.tls_key), Path(peers.tls_ca), peers.tls_name)
