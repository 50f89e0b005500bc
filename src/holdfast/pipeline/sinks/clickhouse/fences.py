"""Where fence numbers are: in a table of the server, or, for replicated tables, in Keeper.

The one rule: a fence is as far-reaching as the table it guards. A table of one server has it beside itself. A table of several
replicas has it in a `KeeperMap`, which all of them read: a fence in a MergeTree of one replica says nothing to the others.

In Keeper a number is raised by compare-and-set (strict mode): of two that raise it the greater stays. Writes are linearizable, but
a replica reads what its own connection to Keeper has seen, which may be a moment old. That moment is the tokens': they are stored
in the same Keeper transaction as the rows, whichever replica is inserted into, so a zombie that has read a fence of before repeats
an insert that is remembered. The fence refuses those that come when no token is remembered any more.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name, quote_identifier, quote_literal
from holdfast.pipeline.mapping.ddl import TableSpec, on_cluster
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.pipeline.sinks.clickhouse.existing_tables import REPLICATED
from holdfast.pipeline.sinks.contract import BlockedError

KEEPER_FENCE_TABLE: Final = "holdfast_fence_keeper"
RAISES_MAX: Final = 100
"""Attempts to raise a number that others raise at the same time."""

# What a server without KeeperMap, or a user without the right to it, answers. Anything else may pass.
_NO_KEEPER: Final = frozenset(
    {
        ClickHouseErrorCode.BAD_ARGUMENTS,
        ClickHouseErrorCode.NOT_IMPLEMENTED,
        ClickHouseErrorCode.UNKNOWN_STORAGE,
        ClickHouseErrorCode.NO_ELEMENTS_IN_CONFIG,
        ClickHouseErrorCode.NO_ZOOKEEPER,
        ClickHouseErrorCode.SUPPORT_IS_DISABLED,
        ClickHouseErrorCode.ACCESS_DENIED,
    }
)


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
        return KEEPER_FENCE_TABLE if self.in_keeper else statements.FENCE_TABLE

    def newest(self, connection: ClickHouseClient, key: str) -> int:
        """The highest number; 0: none."""
        return int(connection.value(statements.read_fence(self.database, key, self.table)))

    def raise_to(self, connection: ClickHouseClient, keys: Sequence[str], number: int) -> None:
        """Write a number for several partitions. A higher one stays."""
        if not self.in_keeper:
            connection.command(statements.write_fences(self.database, keys, number))
            return
        for key in keys:
            self._raise_in_keeper(connection, key, number)

    def _raise_in_keeper(self, connection: ClickHouseClient, key: str, number: int) -> None:
        refused = ""
        for _ in range(RAISES_MAX):
            try:
                if self._try_to_raise(connection, key, number):
                    return
            except ClickHouseError as error:  # another was faster, or the server has lost its session
                if error.code != ClickHouseErrorCode.KEEPER_EXCEPTION:
                    raise
                refused = error.reason
        raise BlockedError(f"the fence of {key} could not be raised to {number} in {RAISES_MAX} attempts: {refused}")

    def _try_to_raise(self, connection: ClickHouseClient, key: str, number: int) -> bool:
        """Whether the number, or a higher one, is there."""
        found, newest = connection.rows(f"SELECT count(), max(epoch) FROM {self._name} WHERE k = {quote_literal(key)}")[
            0
        ]
        if int(newest) < number:
            raised = update_in_keeper if int(found) else insert_in_keeper
            connection.command(raised(self._name, key, number))
        return int(newest) >= number

    @property
    def _name(self) -> str:
        return qualified_name(self.database, self.table)


def create_in_keeper(database: str, cluster: str) -> str:
    """The table in Keeper, on every server that is to read it. All of them share its path."""
    path = quote_literal(f"/holdfast/{database}/fence")
    name = qualified_name(database, KEEPER_FENCE_TABLE) + on_cluster(cluster)
    return f"CREATE TABLE IF NOT EXISTS {name} (k String, epoch UInt64) ENGINE = KeeperMap({path}) PRIMARY KEY k"


def insert_in_keeper(name: str, key: str, number: int) -> str:
    """The first number. Refused if there is one. `name` is quoted already."""
    settings = "SETTINGS keeper_map_strict_mode = 1, async_insert = 0, wait_for_async_insert = 1"
    return f"INSERT INTO {name} (k, epoch) {settings} VALUES ({quote_literal(key)}, {number})"


def update_in_keeper(name: str, key: str, number: int) -> str:
    """A higher number. Refused if another was written meanwhile; a lower one changes nothing. `name` is quoted already."""
    where = f"k = {quote_literal(key)} AND epoch < {number}"
    return f"ALTER TABLE {name} UPDATE epoch = {number} WHERE {where} SETTINGS keeper_map_strict_mode = 1, mutations_sync = 1"


def create_fence(connection: ClickHouseClient, table: TableSpec, engine: str) -> str:
    """Create the fence of a table of this engine. Returns why a replicated one has none in Keeper; empty: it has what it needs."""
    connection.command(statements.create_fence(table.database))
    if not REPLICATED.match(engine):
        return ""
    try:
        # Not again: with a cluster, every server of it must respond to a statement.
        if not fence_of(connection, table.database, table.name).in_keeper:
            connection.command(create_in_keeper(table.database, table.cluster))
        connection.command(sync_replica(table.full_name))
        return _reach(connection, table)
    except ClickHouseError as error:
        if error.code not in _NO_KEEPER:
            raise
        return " ".join(error.text.split())[:300]


def _reach(connection: ClickHouseClient, table: TableSpec) -> str:
    """Why not every replica has the fence's table; empty: all have it."""
    database = quote_literal(table.database)
    shared = connection.rows(f"SELECT engine FROM system.databases WHERE name = {database}")
    if table.cluster or (shared and shared[0][0] in ("Replicated", "Shared")):
        return ""
    found = connection.rows(
        f"SELECT max(total_replicas) FROM system.replicas WHERE database = {database} AND table = {quote_literal(table.name)}"
    )
    replicas = int(found[0][0]) if found else 0
    return (
        f"it has {replicas} replicas and the sink names no cluster, so the fence is on one of them"
        if replicas > 1
        else ""
    )


def sync_replica(name: str) -> str:
    """Have a replica fetch what others have stored. `name` is quoted already."""
    return f"SYSTEM SYNC REPLICA {name} LIGHTWEIGHT"


def fence_of(connection: ClickHouseClient, database: str, table: str) -> Fence:
    """The fence that guards a table."""
    guarded = [table + suffix for suffix in ("", statements.DLQ_SUFFIX, statements.REPLAYED_SUFFIX)]
    names = ", ".join(map(quote_literal, (*guarded, KEEPER_FENCE_TABLE)))
    rows = connection.rows(
        f"SELECT name, engine FROM system.tables WHERE database = {quote_literal(database)} AND name IN ({names})"
    )
    engines = {str(name): str(engine) for name, engine in rows}
    replicated = frozenset(name for name in guarded if REPLICATED.match(engines.get(name, "")))
    return Fence(database, table in replicated and KEEPER_FENCE_TABLE in engines, replicated)


def kill_queries(condition: str, cluster: str) -> str:
    """Kill queries, on every server of the cluster; those that do not respond are not waited for."""
    if not cluster:
        return f"KILL QUERY WHERE {condition} SYNC"
    settings = "SETTINGS distributed_ddl_task_timeout = 15, distributed_ddl_output_mode = 'null_status_on_timeout'"
    return f"KILL QUERY ON CLUSTER {quote_identifier(cluster)} WHERE {condition} SYNC {settings}"


def count_queries(condition: str, cluster: str) -> str:
    """The number of running queries, on every server of the cluster that responds."""
    source = f"clusterAllReplicas({quote_literal(cluster)}, system.processes)" if cluster else "system.processes"
    settings = " SETTINGS skip_unavailable_shards = 1" if cluster else ""
    return f"SELECT count() FROM {source} WHERE {condition}{settings}"
