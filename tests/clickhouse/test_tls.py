"""ClickHouse over TLS: a private authority that the DSN names is trusted, and nobody else is."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.certificates import certificate, issued_certificate
from tests.support.tls_proxy import ending_tls, server_context

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseUnreachableError
from holdfast.clickhouse.http_query import query
from holdfast.testing.clickhouse import ClickHouseServer

TIMEOUT_MS, USER, PASSWORD = 60_000, "ann", "s3cret"


def by_client(dsn: str) -> str:
    client = ClickHouseClient(dsn, timeout_ms=TIMEOUT_MS)
    try:
        return str(client.value("SELECT 1"))
    finally:
        client.close()


def by_http(dsn: str) -> str:
    limit_s = TIMEOUT_MS / 1_000
    return query(dsn, "SELECT 1", user=USER, password=PASSWORD, format="TSV", timeout_s=limit_s).decode().strip()


async def test_a_server_of_a_named_authority_is_trusted_and_no_other(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    authority, issued, key = issued_certificate(tmp_path, "node")
    other, _ = certificate(tmp_path, "other")
    asks: tuple[Callable[[str], str], ...] = (by_client, by_http)
    server = ClickHouseServer(tmp_path / "server", user=USER)
    server.password = PASSWORD
    with server.running():
        async with ending_tls(server.port, server_context(issued, key)) as port:
            for ask in asks:
                dsn = f"https://{USER}:{PASSWORD}@127.0.0.1:{port}/default"
                assert await asyncio.to_thread(ask, f"{dsn}?ca_file={authority}") == "1"
                for untrusted in (f"{dsn}?ca_file={other}", dsn):
                    with pytest.raises(ClickHouseUnreachableError, match=r"(?i)certificate"):
                        await asyncio.to_thread(ask, untrusted)
