"""A DSN and the server it names."""

from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.clickhouse.client import ClickHouseClient, database_of_dsn
from holdfast.testing.clickhouse import ClickHouseServer

PASSWORD = "p@ss:/w%2Förd?#&+ x"


def test_percent_encoded_credentials_are_decoded(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    server = ClickHouseServer(tmp_path, user="a@b")
    server.password = PASSWORD
    with server.running():
        dsn = f"http://a%40b:{quote(PASSWORD, safe='')}@{server.host}:{server.port}/default"
        client = ClickHouseClient(dsn, timeout_ms=10_000)
        assert client.value("SELECT 1") == 1
        client.close()


@pytest.mark.parametrize(
    ("dsn", "database"),
    [
        ("http://u:p@h:1/shop", "shop"),
        ("http://h/my%20shop/?x=1", "my shop"),
        ("http://u:p%2Fq@h:1/a%2Fb", "a/b"),
        ("http://h", ""),
    ],
)
def test_the_path_of_a_dsn_is_the_database(dsn: str, database: str) -> None:
    assert database_of_dsn(dsn) == database
