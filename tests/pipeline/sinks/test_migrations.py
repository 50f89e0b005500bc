"""Tables of a release whose rows did not name their pipeline: blocked, migrated, and what was begun before."""

from dataclasses import replace

import pytest
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.sink_values import again, fenced_range, put, rows_of, target_of

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.pipeline.sinks.clickhouse import migrations, statements
from holdfast.pipeline.sinks.clickhouse.inserts import one_batch
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, SinkTarget

PROVENANCE = "_generation UInt32, _topic LowCardinality(String), _partition UInt32, _offset UInt64"
WINDOW = "SETTINGS non_replicated_deduplication_window = 10000"


@pytest.fixture
def of_before(clickhouse: ClickHouseDatabase) -> ClickHouseDatabase:
    """The tables as the last release made them."""
    table = f"{clickhouse.database}.orders"
    clickhouse.run(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String), {PROVENANCE}) ENGINE = MergeTree ORDER BY id {WINDOW}"
    )
    clickhouse.run(
        f"CREATE TABLE {table}_dlq ({PROVENANCE}, recipe UInt32, reason String, key Nullable(String), "
        "payload Nullable(String), time DateTime64(3) DEFAULT now64(3)) ENGINE = MergeTree "
        f"ORDER BY (_generation, _topic, _partition, _offset) {WINDOW}"
    )
    return clickhouse


def client(clickhouse: ClickHouseDatabase) -> ClickHouseClient:
    return ClickHouseClient(clickhouse.server.url, timeout_ms=60_000)


def write_as_before(clickhouse: ClickHouseDatabase, target: SinkTarget, of: FencedRange) -> None:
    """An insert as the last release made it."""
    rows, _ = rows_of(target, of)
    token = replace(of, legacy=True).identity(target).token
    settings = statements.insert_settings(token, f"holdfast:before-{of.start}-{target.pipeline_id}", timeout_ms=60_000)
    statement = f"INSERT INTO {clickhouse.database}.orders FORMAT ArrowStream"
    client(clickhouse).insert(statement, one_batch(rows), settings=settings)


def migrate(clickhouse: ClickHouseDatabase, owner: str) -> tuple[str, ...]:
    connection = client(clickhouse)
    pending = migrations.pending_statements(connection, clickhouse.database, "orders", owner)
    for statement in pending:
        connection.command(statement)
    return pending


def counted(clickhouse: ClickHouseDatabase) -> dict[str, int]:
    found = clickhouse.ask(f"SELECT _pipeline AS p, count() AS n FROM {clickhouse.database}.orders GROUP BY p")
    return {row["p"]: int(row["n"]) for row in found}


@pytest.mark.parametrize("drift", ["ignore", "add-column"])
def test_a_table_of_before_blocks_with_the_command_that_migrates_it(of_before: ClickHouseDatabase, drift: str) -> None:
    target = target_of(of_before.config(), drift=drift)
    sink = ClickHouseSink(target)
    with pytest.raises(BlockedError, match=r"orders, orders_dlq: made by .* holdfast pipeline migrate p1 shows"):
        sink.prepare()
    assert migrate(of_before, "p1") == tuple(
        f"ALTER TABLE `{of_before.database}`.`{name}` ADD COLUMN IF NOT EXISTS `_pipeline` LowCardinality(String) DEFAULT 'p1'"
        for name in ("orders", "orders_dlq")
    )
    assert migrate(of_before, "p1") == ()
    sink.prepare()
    put(sink, target, fenced_range(0, 10), bad=(3,))
    assert counted(of_before) == {"p1": 9}


def test_a_range_that_was_written_before_the_migration_is_found_after_it(of_before: ClickHouseDatabase) -> None:
    target, of = target_of(of_before.config(dedup_window=2)), fenced_range(0, 50)
    write_as_before(of_before, target, of)
    migrate(of_before, "p1")
    sink = ClickHouseSink(target)
    sink.prepare()
    for start in range(50, 80, 10):  # its token is forgotten
        put(sink, target, fenced_range(start, start + 10))
    assert put(sink, target, replace(again(of), legacy=True)).warnings == ()
    assert counted(of_before) == {"p1": 80}


def test_a_range_begun_before_is_blocked_if_stored_rows_may_be_another_pipelines(
    of_before: ClickHouseDatabase,
) -> None:
    one, other = target_of(of_before.config()), target_of(of_before.config(), pipeline_id="p2")
    write_as_before(of_before, one, fenced_range(0, 50))
    migrate(of_before, "")  # two pipelines write the table
    sink = ClickHouseSink(other)
    sink.prepare()
    with pytest.raises(
        BlockedError, match="50 rows of an earlier release, without a pipeline, at the place of p2:1:orders:0:0-50"
    ):
        put(sink, other, replace(again(fenced_range(0, 50)), legacy=True))
    put(sink, other, replace(again(fenced_range(50, 60)), legacy=True))  # none are there: it was not written
    put(sink, other, again(fenced_range(0, 50)))  # begun by this release: its rows name it
    assert counted(of_before) == {"": 50, "p2": 60}
