"""A table of ClickHouse as a DataFrame: a task for each of its partitions.

The one rule: reading changes nothing. It is no snapshot: a partition is as it is when its task reads it.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`; the filter is the reader's own SQL)

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.spark.clickhouse.options import ClickHouseOptions, parse_options
from holdfast.spark.clickhouse.spark_types import readable
from holdfast.spark.clickhouse.writers import connect
from holdfast.vocabulary.errors import InvalidError, UsageError

_FORMAT = "ArrowStream"


@dataclass(frozen=True)
class TablePartition(InputPartition):
    """A partition of the table, by ClickHouse's id; '': all of a table that has none."""

    id: str


class TableReader(DataSourceReader):
    """`spark.read.format("holdfast.clickhouse")`."""

    def __init__(self, options: ClickHouseOptions, query: str) -> None:
        self._options, self._query = options, query

    def partitions(self) -> Sequence[InputPartition]:
        place = (
            f"database = {quote_literal(self._options.database_name)} AND table = {quote_literal(self._options.table)}"
        )
        with closing(connect(self._options)) as client:
            found = client.rows(f"SELECT DISTINCT partition_id FROM system.parts WHERE {place} AND active ORDER BY 1")
        return [TablePartition(row[0]) for row in found] or [TablePartition("")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TablePartition)
        conditions = [f"({self._options.filter})"] if self._options.filter else []
        if partition.id:
            conditions.append(f"_partition_id = {quote_literal(partition.id)}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        with closing(connect(self._options)) as client, client.stream(self._query + where, _FORMAT) as source:
            yield from pa.ipc.open_stream(source)


def read_schema(given: Mapping[str, str]) -> StructType:
    """The columns of the table, in Spark's types."""
    options = parse_options(given)
    with closing(connect(options)) as client:
        query = _query(client, options)
        with client.stream(f"{query} LIMIT 0", _FORMAT) as source:
            return from_arrow_schema(pa.ipc.open_stream(source).schema)


def table_reader(given: Mapping[str, str], schema: StructType) -> TableReader:
    """The reader of a table. `InvalidError` for a schema that is not the table's."""
    found = read_schema(given)
    if [field.name for field in schema.fields] != [field.name for field in found.fields]:
        raise InvalidError("schema", schema.simpleString(), f"absent or {found.simpleString()}")
    options = parse_options(given)
    with closing(connect(options)) as client:
        return TableReader(options, _query(client, options))


def _query(client: ClickHouseClient, options: ClickHouseOptions) -> str:
    database, table = options.database_name, options.table
    columns = client.rows(
        f"SELECT name, type FROM system.columns WHERE database = {quote_literal(database)} AND table = {quote_literal(table)} "
        "AND default_kind != 'ALIAS' ORDER BY position"
    )
    if not columns:
        raise UsageError(f"table {database}.{table} does not exist in ClickHouse at {client.address}")
    listed = ", ".join(readable(name, kind) for name, kind in columns)
    return f"SELECT {listed} FROM {qualified_name(database, table)}{' FINAL' if options.final else ''}"
