"""Rows in Keeper that every replica of a table reads: `KeeperMap` tables, changed by compare-and-set. Fence numbers are such rows.

The one rule: in strict mode a row is inserted if there is none, and changed if it is as it was read; of two that race one is
refused, reads again, and decides again. So of two fence numbers the greater stays.

Writes are linearizable, but a replica reads what its own connection to Keeper has seen, which may be a moment old. That moment is
the tokens': they are stored in the same Keeper transaction as the rows, whichever replica is inserted into, so a zombie that has
read a fence of before repeats an insert that is remembered. The fence refuses those that come when no token is remembered any more.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.clickhouse.replicas import on_cluster
from holdfast.vocabulary.errors import UnavailableError

KEEPER_FENCE_TABLE: Final = "holdfast_fence_keeper"
ATTEMPTS_MAX: Final = 100
"""Of a compare-and-set that others race with."""
STRICT: Final = "keeper_map_strict_mode = 1"

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

T = TypeVar("T")


def create_keeper_table(database: str, table: str, columns: str, *, path: str, cluster: str) -> str:
    """A table in Keeper with the key `k`, on every server that is to read it. All of them share its path."""
    where = quote_literal(f"/holdfast/{database}/{path}")
    name = qualified_name(database, table) + on_cluster(cluster)
    return f"CREATE TABLE IF NOT EXISTS {name} (k String, {columns}) ENGINE = KeeperMap({where}) PRIMARY KEY k"


def create_fence_table(database: str, cluster: str) -> str:
    """Fence numbers."""
    return create_keeper_table(database, KEEPER_FENCE_TABLE, "epoch UInt64", path="fence", cluster=cluster)


def why_no_keeper(error: ClickHouseError) -> str:
    """Why a table in Keeper cannot be had, by what the server answered. Raises the error if it may pass."""
    if error.code not in _NO_KEEPER:
        raise error
    return " ".join(error.text.split())[:300]


def compare_and_set(attempt: Callable[[], T | None], what: str) -> T:
    """What an attempt returns, repeated while it is None or another was faster. `UnavailableError`: too often."""
    refused = ""
    for _ in range(ATTEMPTS_MAX):
        try:
            if (done := attempt()) is not None:
                return done
        except ClickHouseError as error:  # another was faster, or the server has lost its session
            if error.code != ClickHouseErrorCode.KEEPER_EXCEPTION:
                raise
            refused = error.reason
    raise UnavailableError("Keeper", f"{what} not changed in {ATTEMPTS_MAX} attempts: {refused}")


def read_number(database: str, key: str, table: str = KEEPER_FENCE_TABLE) -> str:
    """The highest fence number; 0: none."""
    return f"SELECT max(epoch) FROM {qualified_name(database, table)} WHERE k = {quote_literal(key)}"


def insert_number(database: str, key: str, number: int) -> str:
    """The first number. Refused if there is one."""
    settings = f"SETTINGS {STRICT}, async_insert = 0, wait_for_async_insert = 1"
    name = qualified_name(database, KEEPER_FENCE_TABLE)
    return f"INSERT INTO {name} (k, epoch) {settings} VALUES ({quote_literal(key)}, {number})"


def update_number(database: str, key: str, number: int) -> str:
    """A higher number. Refused if another was written meanwhile; a lower one changes nothing."""
    where = f"k = {quote_literal(key)} AND epoch < {number}"
    name = qualified_name(database, KEEPER_FENCE_TABLE)
    return f"ALTER TABLE {name} UPDATE epoch = {number} WHERE {where} SETTINGS {STRICT}, mutations_sync = 1"


def raise_number(connection: ClickHouseClient, database: str, key: str, number: int) -> None:
    """Write a fence number. A higher one stays. `UnavailableError`."""

    def attempt() -> bool | None:
        found = connection.rows(
            f"SELECT count(), max(epoch) FROM {qualified_name(database, KEEPER_FENCE_TABLE)} WHERE k = {quote_literal(key)}"
        )
        count, newest = map(int, found[0])
        if newest < number:
            connection.command((update_number if count else insert_number)(database, key, number))
        return newest >= number or None

    compare_and_set(attempt, f"the fence of {key} to {number}:")
