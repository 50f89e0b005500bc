"""Mutual TLS between agents: with each other's certificate they talk as without; without it nobody gets as far as a handshake."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.peers import CLUSTER, QUICK, MemberTable, StreamNode, stream_node
from tests.support.waiting import async_until

from holdfast.agent.peers.dial import DialError, Peer, dial
from holdfast.agent.peers.handshake import VERSIONS, PeerIdentity
from holdfast.agent.peers.observations import DialOutcome
from holdfast.security.tls import CurrentContext, TlsFiles, authorities
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.host_port import HostPort, split_host_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "node.pem"
    make_certificate(path)
    return path


def make_certificate(path: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=node"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", f"{path}.crt"],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())


def contexts(certificate: Path, trusted: Path) -> dict[str, object]:
    """Both ends show `certificate` and accept who shows `trusted`."""
    files = TlsFiles(certificate=str(certificate), key=str(certificate), client_authorities=str(trusted))
    return {"client_tls": CurrentContext(files, TlsFiles.client_context), "server_tls": CurrentContext(files)}


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
    strict = {**tls, "client_tls": CurrentContext(authorities(""), TlsFiles.client_context)}
    async with stream_node(table, "ann", **strict) as ann, stream_node(table, "bob", **tls):
        await async_until(lambda: ann.events.observations)
        assert set(ann.events.outcomes()) == {DialOutcome.TLS}


def address_of(node: StreamNode) -> HostPort:
    found = split_host_port(node.peers.address)
    assert found is not None
    return found


async def test_certificates_that_change_are_used_by_the_next_connection(tmp_path: Path) -> None:
    used, other = tmp_path / "used.pem", tmp_path / "other.pem"
    make_certificate(used)
    make_certificate(other)
    quick = replace(QUICK, tls_reload_ms=10)
    table = MemberTable()
    async with (
        stream_node(table, "ann", settings=quick, **contexts(used, used)) as ann,
        stream_node(table, "bob", settings=quick, **contexts(used, used)) as bob,
    ):
        assert await ann.ask("bob", b"1") == [b"ok:1"]
        shutil.copy(other, used)

        async def renewed() -> bool:
            """Whether bob takes the new certificate, and shows it."""
            try:
                connection, _ = await dial(
                    PeerIdentity(cluster=CLUSTER, agent="ann", wal_id="wal-ann"),
                    Peer(identity=bob.peers.us, address=address_of(bob)),
                    connect_ms=60_000,
                    versions=VERSIONS,
                    clock=RealClock(),
                    tls=contexts(other, other)["client_tls"],  # type: ignore[arg-type]
                )
            except DialError:
                return False
            connection.abort(DialOutcome.STOPPED, "seen")
            return True

        await async_until(renewed)

        async def answered() -> bool:
            """Whether ann has connected again, with the new certificate: what was dialled took the place of its stream."""
            return await ann.ask("bob", b"2") == [b"ok:2"]

        await async_until(answered)
