"""The expressions of a table, checked by the server that is to have them.

The one rule: the server reads an expression over the columns of the table, without a row and without an effect, and its own message
says what is wrong. It also prints them as it will print them back, so that two tables can be compared.
"""

# ruff: noqa: S608 (expressions stay in their brackets: `clickhouse.expressions`)

from dataclasses import replace
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import quote_identifier, quote_literal
from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.vocabulary.errors import InvalidError

_SELECT: Final = "SELECT "


def normalized(connection: ClickHouseClient, table: TableSpec) -> TableSpec:
    """The table with its expressions as the server prints them. `InvalidError`: one of them is not valid."""
    columns = table.columns()
    keys = {entry: _printed(connection, table, "orderBy", entry) for entry in table.order_by if entry not in columns}
    return replace(
        table,
        order_by=tuple(keys.get(entry, entry) for entry in table.order_by),
        primary_key=tuple(keys.get(entry, entry) for entry in table.primary_key),
        partition_by=_printed(connection, table, "partitionBy", table.partition_by),
        ttl=_printed(connection, table, "ttl", table.ttl),
    )


def _printed(connection: ClickHouseClient, table: TableSpec, what: str, text: str) -> str:
    if not text:
        return ""
    structure = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in table.columns().items())
    try:
        connection.rows(f"SELECT ({text}) FROM null({quote_literal(structure)}) LIMIT 0")
        shown = str(connection.value(f"SELECT formatQuerySingleLine({quote_literal(_SELECT + text)})"))
    except ClickHouseError as error:
        if (
            error.code == ClickHouseErrorCode.ACCESS_DENIED
        ):  # of the table function: the table's own statement will tell
            return text
        raise InvalidError(f"sink.{what}", text, f"an expression of the table's columns ({error.text[:300]})") from None
    return shown.removeprefix(_SELECT)
