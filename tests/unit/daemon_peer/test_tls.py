"""Mutual TLS with certificates that are replaced while the agents run."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest

from scoutd.agent.messages import Probe
from scoutd.daemon.errors import PeerError
from scoutd.daemon.peer import tls
from scoutd.daemon.peer.client import PeerClient
from scoutd.daemon.peer.server import PeerService
from scoutd.daemon.peer.tls import Credentials, Files
from scoutd.daemon.peer.traffic import Traffic
from tests.unit.daemon_peer.wire import MARK, REPLY, Host, member

PROBE = Probe((MARK,), 0)
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(folder: Path) -> Files:
    """A new authority, and a certificate of it for 127.0.0.1, as the files of an agent."""
    folder.mkdir(exist_ok=True)
    ca, ca_key, cert, key = (folder / name for name in ("ca.pem", "ca.key", "cert.pem", "key.pem"))
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    openssl("req", "-x509", *curve, "-subj", "/CN=authority", "-keyout", str(ca_key), "-out", str(ca))
    openssl("req", *curve[:-2], "-subj", "/CN=agent", "-keyout", str(key), "-out", str(folder / "csr"))
    (folder / "ext").write_text("subjectAltName=IP:127.0.0.1")
    signing = ["-CA", str(ca), "-CAkey", str(ca_key), "-CAcreateserial", "-days", "30"]
    made = ["-in", str(folder / "csr"), "-extfile", str(folder / "ext"), "-out", str(cert)]
    openssl("x509", "-req", *signing, *made)
    return Files(cert, key, ca)


@pytest.fixture(autouse=True)
def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "LOOK_S", 0.0)


def serving(files: Files, work: Callable[[str], Awaitable[None]]) -> None:
    async def body() -> None:
        host = Host(member("b"))
        server = grpc.aio.server()
        PeerService(lambda job: host, lambda challenge: False, Traffic()).add_to(server)
        port = server.add_secure_port("127.0.0.1:0", Credentials(files).server())
        await server.start()
        try:
            await asyncio.wait_for(work(f"127.0.0.1:{port}"), 20)
        finally:
            await server.stop(0)

    asyncio.run(body())


async def asked(client: PeerClient, address: str) -> object:
    try:
        return await client.ask(member(), "b", address, PROBE, 3.0)
    except PeerError as error:
        return error.reason


def test_members_with_certificates_of_the_authority_are_heard(tmp_path: Path) -> None:
    files = authority(tmp_path)

    async def work(address: str) -> None:
        client = PeerClient(Traffic(), Credentials(files))
        assert await asked(client, address) == REPLY
        await client.close()

    serving(files, work)


def test_without_a_certificate_or_with_another_authoritys_nobody_is_heard(tmp_path: Path) -> None:
    stranger = authority(tmp_path / "other")

    async def work(address: str) -> None:
        for client in (PeerClient(Traffic()), PeerClient(Traffic(), Credentials(stranger))):
            assert await asked(client, address) == "unreachable"
            await client.close()

    serving(authority(tmp_path / "ours"), work)


def test_new_files_are_in_force_without_a_restart(tmp_path: Path) -> None:
    files = authority(tmp_path)

    async def work(address: str) -> None:
        client = PeerClient(Traffic(), Credentials(files))
        assert await asked(client, address) == REPLY
        authority(tmp_path)
        client.tidy()
        fresh = PeerClient(Traffic(), Credentials(files))
        assert await asked(fresh, address) == REPLY
        assert await asked(client, address) == REPLY
        await client.close()
        await fresh.close()

    serving(files, work)


def test_half_written_files_leave_the_old_ones_in_force(tmp_path: Path) -> None:
    files = authority(tmp_path)
    credentials = Credentials(files)
    files.key.write_text("-----BEGIN")
    assert not credentials.refresh()
    assert "the old ones stay" in credentials.warning
    assert credentials.epoch == 1
    authority(tmp_path)
    assert credentials.refresh()
    assert (credentials.epoch, credentials.warning) == (2, "")
