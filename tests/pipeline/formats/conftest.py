"""The embedded ClickHouse, for what becomes of records in a table."""

from tests.support.sink_destinations import clickhouse, clickhouse_server_process  # noqa: F401 (fixtures)
