from collections.abc import Iterator

import pytest
from tests.support.clickhouse_sink import TableUnderTest

from holdfast.testing.clickhouse import ClickHouseServer


@pytest.fixture
def table(clickhouse: ClickHouseServer, clickhouse_database: str) -> Iterator[TableUnderTest]:
    made = TableUnderTest(clickhouse, clickhouse_database, {"inlineBytes": "0"})
    yield made
    made.client.close()
