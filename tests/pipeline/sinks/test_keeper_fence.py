"""The fence of replicated tables, in a KeeperMap: two ClickHouse servers (chDB) with one Keeper (Apache ZooKeeper).

A replicated table cannot be inserted into here: chDB has no port for other replicas, and leaves it read-only. So the rows of these
tests go to a plain table of each server, which stand for two replicas, and what is tested for real is the fence that both read.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest
from tests.support.sink_values import fenced_range, put, target_of
from tests.support.waiting import until
from tests.support.zookeeper import KeeperClickHouse

from holdfast.clickhouse import keeper
from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.pipeline.mapping.ddl import create_table
from holdfast.pipeline.mapping.table_diff import compare_table
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.clickhouse import fences, statements, tables
from holdfast.pipeline.sinks.clickhouse import sink as sink_module
from holdfast.pipeline.sinks.clickhouse.existing_tables import describe_table
from holdfast.pipeline.sinks.clickhouse.fences import Fence
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import BlockedError, SinkTarget
from holdfast.vocabulary.errors import FencedError

T = TypeVar("T")
Pair = tuple[KeeperClickHouse, KeeperClickHouse]


pytestmark = pytest.mark.xdist_group("keeper")


@pytest.fixture(scope="module")
def pair(clickhouse_replicas: Pair) -> Iterator[Pair]:
    for server in clickhouse_replicas:
        connection = connection_to(server)
        connection.command("CREATE DATABASE shop ENGINE = Atomic")
        repeated(partial(connection.command, keeper.create_fence_table("shop", "")))
    yield clickhouse_replicas
    for server in clickhouse_replicas:
        server.query("DROP DATABASE shop SYNC")


def connection_to(server: KeeperClickHouse) -> ClickHouseClient:
    return ClickHouseClient(server.url, timeout_ms=60_000)


def newest(server: KeeperClickHouse, key: str) -> int:
    return repeated(lambda: Fence("shop", in_keeper=True).newest(connection_to(server), key))


def repeated(call: Callable[[], T]) -> T:
    """As a driver does: a server that has lost its session with Keeper is asked again. Every call here may be."""
    done: list[T] = []

    def attempt() -> bool:
        try:
            done.append(call())
        except (ClickHouseError, BlockedError) as error:
            if "KEEPER_EXCEPTION" not in str(error) or "Session expired" not in str(error):
                raise
        return bool(done)

    until(attempt, what="Keeper answers")
    return done[0]


def target_at(server: KeeperClickHouse, **more: Any) -> SinkTarget:
    return target_of(ClickHouseConfig(dsn=server.url, database="shop", table="orders", **more))


def test_a_number_that_one_server_raises_is_read_by_the_other(pair: Pair) -> None:
    fence, (first, second) = Fence("shop", in_keeper=True), map(connection_to, pair)
    assert newest(pair[0], "k1") == 0
    fence.raise_to(first, ["k1", "k2"], 7)
    assert newest(pair[1], "k1") == newest(pair[1], "k2") == 7
    fence.raise_to(second, ["k1"], 9)
    fence.raise_to(first, ["k1"], 8)
    assert newest(pair[0], "k1") == 9


def test_of_racing_numbers_the_greatest_stays(pair: Pair) -> None:
    def raise_to(number: int) -> None:
        Fence("shop", in_keeper=True).raise_to(connection_to(pair[number % 2]), ["raced"], number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(raise_to, range(1, 13)))
    for server in pair:
        assert newest(server, "raced") == 12


def test_a_write_that_did_not_see_the_newest_number_is_refused(pair: Pair) -> None:
    connection = connection_to(pair[0])
    Fence("shop", in_keeper=True).raise_to(connection, ["strict"], 5)
    with pytest.raises(ClickHouseError, match="Node exists"):
        repeated(lambda: connection.command(keeper.insert_number("shop", "strict", 6)))
    repeated(lambda: connection.command(keeper.update_number("shop", "strict", 4)))
    assert newest(pair[0], "strict") == 5


def test_a_zombie_at_one_server_is_refused_by_the_fence_of_its_successor_at_another(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "fence_of", lambda *_: Fence("shop", in_keeper=True))
    first, second = (ClickHouseSink(target_at(server)) for server in pair)
    first.prepare()
    second.prepare()
    before = repeated(lambda: first.fence(0, 1))
    repeated(lambda: put(first, target_at(pair[0]), fenced_range(0, 10, fence=before)))
    after = repeated(lambda: second.fence(0, 2))
    assert after > before
    with pytest.raises(FencedError):
        repeated(lambda: put(first, target_at(pair[0]), fenced_range(10, 20, fence=before)))
    repeated(lambda: put(second, target_at(pair[1]), fenced_range(10, 20, epoch=2, fence=after)))
    with pytest.raises(FencedError):
        repeated(lambda: first.fence(0, 1))
    stored = "SELECT count() FROM shop.orders WHERE _partition = 0"
    assert [server.query(stored) for server in pair] == [b"10\n", b"10\n"]
    first.close()
    second.close()


def test_with_a_fence_of_its_own_server_the_zombie_would_write(pair: Pair) -> None:
    first, second = (ClickHouseSink(target_at(server)) for server in pair)
    first.prepare()
    second.prepare()
    before = first.fence(3, 1)
    second.fence(3, 2)
    put(first, target_at(pair[0]), fenced_range(0, 10, partition=3, fence=before))
    assert pair[0].query("SELECT count() FROM shop.orders WHERE _partition = 3") == b"10\n"
    first.close()
    second.close()


@pytest.mark.parametrize("engine", ["ReplicatedMergeTree", "ReplicatedReplacingMergeTree"])
def test_a_replicated_table_is_created_and_found_as_it_should_be(pair: Pair, engine: str) -> None:
    version = {"version_column": "_offset"} if "Replacing" in engine else {}
    target = target_at(
        pair[0],
        engine=engine,
        replica_path=f"/tables/{engine}",
        replica_name="{replica}",
        partition_by="id % 2",
        **version,
    )
    connection, table = connection_to(pair[0]), replace(tables.table_of(target), name=engine)
    repeated(lambda: connection.command(create_table(table)))
    has = describe_table(connection, table)
    assert has is not None
    assert (has.engine, has.window, has.window_s) == (engine, 10_000, 604_800)
    found = compare_table(table, has)
    assert not any((found.missing, found.differs, found.extra, found.statements, found.blockers, found.warnings))
    repeated(lambda: connection.command(statements.create_dlq("shop", engine, table.window, table)))
    guard = fences.fence_of(connection, "shop", engine)
    assert guard == Fence("shop", True, frozenset({engine, f"{engine}_dlq"}))
