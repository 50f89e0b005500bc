"""Which table a name means. One that was dropped and created again is another: what was recorded of the former is not true of it.

The one rule: an overwrite of ours exchanges two tables, and the identity goes with the name. The two ids are recorded before the
exchange, so that whoever looks finds it under either.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.vocabulary.errors import UsageError

EXCHANGES: Final = "holdfast_spark_exchanges"
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def create_exchanges(database: str) -> str:
    """The last exchange of every writer."""
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified_name(database, EXCHANGES)} (target String, writer String, before String, "
        "after String, identity String, at DateTime64(6) DEFAULT now64(6)) "
        "ENGINE = ReplacingMergeTree(at) ORDER BY (target, writer)"
    )


def table_identity(client: ClickHouseClient, database: str, table: str) -> str:
    """Empty: the server gives its tables no ids (a database that is not Atomic), so that only the name is left."""
    uuid = _uuid(client, database, table)
    if not uuid:
        return ""
    found = client.rows(
        f"SELECT identity FROM {qualified_name(database, EXCHANGES)} WHERE target = {quote_literal(table)} "
        f"AND {quote_literal(uuid)} IN (before, after) ORDER BY at DESC LIMIT 1"
    )
    return str(found[0][0]) if found else uuid


def replicated_identity(client: ClickHouseClient, database: str, table: str) -> str:
    """The same for all replicas: when the table was made in Keeper. One that is not listed there has one id on all of them."""
    found = client.rows(
        f"SELECT zookeeper_path FROM system.replicas WHERE database = {quote_literal(database)} AND table = {quote_literal(table)}"
    )
    if not found:
        return _uuid(client, database, table)
    path = str(found[0][0]).rstrip("/")
    parent, _, name = path.rpartition("/")
    query = f"SELECT czxid FROM system.zookeeper WHERE path = {quote_literal(parent or '/')} AND name = {quote_literal(name)}"
    try:
        return f"{path}@{client.value(query)}"
    except ClickHouseError as error:
        if error.code not in (ClickHouseErrorCode.UNKNOWN_TABLE, ClickHouseErrorCode.ACCESS_DENIED):
            raise
        raise UsageError(
            f"{qualified_name(database, table)} is replicated, and system.zookeeper, which says whether it was dropped and created "
            "again, cannot be read: GRANT SELECT ON system.zookeeper; guarantee=at-least-once does without"
        ) from None


def keep_identity(client: ClickHouseClient, database: str, table: str, following: str) -> None:
    """Right before `table` is exchanged with the table `following`."""
    before, after = _uuid(client, database, table), _uuid(client, database, following)
    if not before or not after:
        return
    values = (table, following, before, after, table_identity(client, database, table))
    client.command(
        f"INSERT INTO {qualified_name(database, EXCHANGES)} (target, writer, before, after, identity) "
        f"SETTINGS async_insert = 0, wait_for_async_insert = 1 VALUES ({', '.join(map(quote_literal, values))})"
    )


def _uuid(client: ClickHouseClient, database: str, table: str) -> str:
    found = client.rows(
        f"SELECT toString(uuid) FROM system.tables WHERE database = {quote_literal(database)} AND name = {quote_literal(table)}"
    )
    return str(found[0][0]) if found and found[0][0] != _NO_UUID else ""
