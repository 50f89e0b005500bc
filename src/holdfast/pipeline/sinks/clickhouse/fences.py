"""Where fence numbers are: in a table of the server, or, for replicated tables, in Keeper (`clickhouse.keeper`).

The one rule: a fence is as far-reaching as the table it guards. A table of one server has it beside itself. A table of several
replicas has it in a `KeeperMap`, which all of them read: a fence in a MergeTree of one replica says nothing to the others.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.clickhouse import keeper
from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import quote_literal
from holdfast.clickhouse.replicas import REPLICATED, sync_replica, unreached_by_fence
from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence numbers of a database."""

    database: str
    in_keeper: bool = False
    replicated: frozenset[str] = frozenset()
    """Of the table it guards, its DLQ and its marks: those that are replicated."""

    @property
    def table(self) -> str:
        """The table's name."""
        return keeper.KEEPER_FENCE_TABLE if self.in_keeper else statements.FENCE_TABLE

    def newest(self, connection: ClickHouseClient, key: str) -> int:
        """The highest number; 0: none."""
        return int(connection.value(statements.read_fence(self.database, key, self.table)))

    def raise_to(self, connection: ClickHouseClient, keys: Sequence[str], number: int) -> None:
        """Write a number for several partitions. A higher one stays."""
        self.raise_each(connection, dict.fromkeys(keys, number))

    def raise_each(self, connection: ClickHouseClient, numbers: Mapping[str, int]) -> None:
        """Write a number by key. A higher one stays."""
        if not self.in_keeper:
            connection.command(statements.write_numbers(self.database, numbers))
            return
        try:
            for key, number in numbers.items():
                keeper.raise_number(connection, self.database, key, number)
        except UnavailableError as error:
            raise BlockedError(str(error)) from None


def create_fence(connection: ClickHouseClient, table: TableSpec, engine: str) -> str:
    """Create the fence of a table of this engine. Returns why a replicated one has none in Keeper; empty: it has what it needs."""
    connection.command(statements.create_fence(table.database))
    if not REPLICATED.match(engine):
        return ""
    try:
        # Not again: with a cluster, every server of it must respond to a statement.
        if not fence_of(connection, table.database, table.name).in_keeper:
            connection.command(keeper.create_fence_table(table.database, table.cluster))
        connection.command(sync_replica(table.full_name))
        return unreached_by_fence(connection, table.database, table.name, table.cluster)
    except ClickHouseError as error:
        return keeper.why_no_keeper(error)


def fence_of(connection: ClickHouseClient, database: str, table: str) -> Fence:
    """The fence that guards a table."""
    guarded = [table + suffix for suffix in ("", statements.DLQ_SUFFIX, statements.REPLAYED_SUFFIX)]
    names = ", ".join(map(quote_literal, (*guarded, keeper.KEEPER_FENCE_TABLE)))
    rows = connection.rows(
        f"SELECT name, engine FROM system.tables WHERE database = {quote_literal(database)} AND name IN ({names})"
    )
    engines = {str(name): str(engine) for name, engine in rows}
    replicated = frozenset(name for name in guarded if REPLICATED.match(engines.get(name, "")))
    return Fence(database, table in replicated and keeper.KEEPER_FENCE_TABLE in engines, replicated)
