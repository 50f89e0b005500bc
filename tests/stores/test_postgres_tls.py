"""PostgreSQL over TLS, with the real driver: a private authority that is named is trusted, and nobody else is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificates import certificate, issued_certificate
from tests.support.store_engines.postgres import PostgresServer
from tests.support.tls_proxy import ending_tls, server_context

from holdfast.contracts.store import Committed, Put
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.random import SystemRandom


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")).running() as running:
        yield running


def url(port: int, mode: str, authority: Path | None = None, host: str = "127.0.0.1") -> str:
    trusted = "" if authority is None else f"&sslrootcert={authority}"
    return f"postgresql://postgres@{host}:{port}/postgres?schema=tls&sslmode={mode}{trusted}"


async def test_a_server_of_a_named_authority_is_trusted(server: PostgresServer, tmp_path: Path) -> None:
    authority, issued, key = issued_certificate(tmp_path, "node")
    async with ending_tls(server.port, server_context(issued, key), postgres=True) as port:
        for mode in ("require", "verify-ca", "verify-full"):
            trusted = None if mode == "require" else authority
            async with open_store(url(port, mode, trusted), clock=RealClock(), random=SystemRandom()) as store:
                assert isinstance(await store.commit(apply=[Put(mode, b"1")]), Committed)
                found = await store.get(mode)
                assert found is not None
                assert found.value == b"1"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_another_server_is_refused_at_once_with_the_reason(
    server: PostgresServer, tmp_path: Path, host: str
) -> None:
    """At once: what is waited for is a server that is not available, and this is none of that kind."""
    authority, issued, key = issued_certificate(tmp_path, "node")
    other, _ = certificate(tmp_path, "other")
    trusted = authority if host == "localhost" else other  # of our authority, and not for this name; or of another
    async with ending_tls(server.port, server_context(issued, key), postgres=True) as port:
        with pytest.raises(UsageError, match=r"certificate.*must be of an authority in sslrootcert"):
            async with open_store(url(port, "verify-full", trusted, host), clock=RealClock(), random=SystemRandom()):
                pass
