"""Mutual TLS between agents: with each other's certificate they talk as without; without it nobody gets as far as a handshake."""

import ssl
import subprocess
from pathlib import Path

import pytest
from tests.support.peers import MemberTable, stream_node
from tests.support.waiting import async_until

from holdfast.agent.peers.observations import Outcome


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "node.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=node"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def contexts(certificate: Path, trusted: Path) -> dict[str, object]:
    """Both ends show `certificate` and accept who shows `trusted`."""
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(trusted))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(trusted))
    server.verify_mode = ssl.CERT_REQUIRED
    for each in (client, server):
        each.load_cert_chain(certificate)
    return {"client_tls": client, "server_tls": server}


async def test_agents_with_each_others_certificate_talk(certificate: Path) -> None:
    table, tls = MemberTable(), contexts(certificate, certificate)
    async with stream_node(table, "ann", **tls) as ann, stream_node(table, "bob", **tls) as bob:
        large = bytes(300_000)
        assert await ann.ask("bob", b"1", large) == [b"ok:1", b"ok:" + large]
        assert await bob.ask("ann", b"2") == [b"ok:2"]


async def test_one_without_it_is_not_heard(certificate: Path) -> None:
    table, tls = MemberTable(), contexts(certificate, certificate)
    async with stream_node(table, "ann") as ann, stream_node(table, "bob", **tls) as bob:
        await async_until(lambda: ann.events.observations and bob.events.observations)
        assert not ann.events.connected_to
        assert not bob.events.connected_to
        assert bob.received == ann.received == []


async def test_a_certificate_that_is_not_trusted_is_a_tls_error(certificate: Path) -> None:
    table, tls = MemberTable(), contexts(certificate, certificate)
    plain = ssl.create_default_context()
    strict = {**tls, "client_tls": plain}
    async with stream_node(table, "ann", **strict) as ann, stream_node(table, "bob", **tls):
        await async_until(lambda: ann.events.observations)
        assert set(ann.events.outcomes()) == {Outcome.TLS}
