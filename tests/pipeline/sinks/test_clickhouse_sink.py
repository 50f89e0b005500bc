"""ClickHouse alone: one block, tokens, the fence, and what is said when a table is not as it should be."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.error import HTTPError
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pytest
from tests.support.sink_destinations import ClickHouseDatabase, lose_parts
from tests.support.sink_values import COLUMNS, again, fenced_range, put, rows_of, target_of
from tests.support.waiting import until

from holdfast.clickhouse.client import ClickHouseClient, parse_dsn
from holdfast.clickhouse.errors import ClickHouseUnreachableError
from holdfast.pipeline.mapping.ddl import DEDUP_WINDOW_SETTING, create_table
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, compare_table
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.service.row_deletion import FOR_EVER
from holdfast.pipeline.sinks.clickhouse import statements, tables
from holdfast.pipeline.sinks.clickhouse.inserts import one_batch
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import AT_LEAST_ONCE, BlockedError, SinkTarget
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import FencedError, InvalidError


def target_in(clickhouse: ClickHouseDatabase, **more: object) -> SinkTarget:
    return target_of(clickhouse.config(**more))


def prepared(target: SinkTarget) -> ClickHouseSink:
    sink = ClickHouseSink(target)
    sink.prepare()
    return sink


def count(clickhouse: ClickHouseDatabase, table: str = "orders") -> tuple[int, int]:
    found = clickhouse.ask(
        f"SELECT count() AS n, uniqExact(_partition, _offset) AS d FROM {clickhouse.database}.{table}"
    )
    return int(found[0]["n"]), int(found[0]["d"])


def parts(clickhouse: ClickHouseDatabase) -> int:
    query = f"SELECT count() AS n FROM system.parts WHERE database = '{clickhouse.database}' AND table = 'orders' AND active"
    return int(clickhouse.ask(query)[0]["n"])


def test_an_insert_is_one_block_however_the_server_is_set(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 100_000)
    sink = prepared(target)
    rows, _ = rows_of(target, of)
    kinds = statements.kinds_of(tables.table_of(target), rows.schema.names)
    key = target.fence_key(0)
    statement = statements.fenced_insert(
        tables.table_of(target).full_name, kinds, database=clickhouse.database, key=key, epoch=1
    )
    many_batches = pa.BufferOutputStream()
    with pa.ipc.new_stream(many_batches, rows.schema) as stream:
        stream.write_table(rows, max_chunksize=1_000)
    data = many_batches.getvalue()
    connection = ClickHouseClient(clickhouse.server.url, timeout_ms=60_000)
    clickhouse.run(f"SYSTEM STOP MERGES {clickhouse.database}.orders")
    settings = statements.insert_settings("t1", "holdfast:one", timeout_ms=60_000)
    connection.insert(statement, data, settings=settings)
    assert (parts(clickhouse), count(clickhouse)) == (1, (100_000, 100_000))
    small = {**settings, "insert_deduplication_token": "t2", "query_id": "holdfast:many"}
    small |= {"min_insert_block_size_rows": 1_000, "max_insert_block_size": 1_000, "max_block_size": 1_000}
    connection.insert(statement, data, settings=small)
    assert parts(clickhouse) > 2  # so that the settings are what makes it one
    sink.close()


def test_the_block_is_in_the_order_of_offsets() -> None:
    target = target_of(tables_config())
    rows, _ = rows_of(target, fenced_range(0, 5_000))
    with pa.ipc.open_stream(one_batch(rows)) as stream:
        batches = list(stream)
    assert [batch.num_rows for batch in batches] == [5_000]
    assert batches[0]["_offset"].to_pylist() == list(range(5_000))


async def test_an_insert_whose_response_is_lost_blocks_and_is_not_retried_by_the_client(
    clickhouse: ClickHouseDatabase,
) -> None:
    """Whether it has landed is for the sink to look."""
    clickhouse.run(f"CREATE TABLE {clickhouse.database}.bare (n Int64) ENGINE = MergeTree ORDER BY n")
    statement, data = (
        f"INSERT INTO {clickhouse.database}.bare FORMAT ArrowStream",
        one_batch(pa.table({"n": [1, 2, 3]})),
    )
    place = urlsplit(clickhouse.server.url)
    assert place.hostname
    assert place.port
    async with FaultProxy.running(place.hostname, place.port, clock=RealClock()) as proxy:
        dsn = clickhouse.server.url.replace(f":{place.port}", f":{proxy.port}")
        connection = ClickHouseClient(dsn, timeout_ms=10_000)
        await asyncio.to_thread(connection.value, "SELECT 1")
        proxy.lose_answer_to("INSERT INTO")
        with pytest.raises(ClickHouseUnreachableError, match="does not answer"):
            await asyncio.to_thread(connection.insert, statement, data, settings={})
        assert proxy.lost == 1
        found = await asyncio.to_thread(connection.rows, f"SELECT n FROM {clickhouse.database}.bare ORDER BY n")
        assert [row[0] for row in found] == [1, 2, 3]
        connection.close()


def tables_config() -> ClickHouseConfig:
    return ClickHouseConfig(dsn="http://127.0.0.1:1", database="d", table="orders")


def test_a_token_says_nothing_of_the_epoch_and_a_query_id_does() -> None:
    target = target_of(tables_config())
    one, other = fenced_range(5, 9, partition=3, epoch=7), fenced_range(5, 9, partition=3, epoch=8)
    assert one.identity(target).token == other.identity(target).token == "p1:1:orders:3:5-9"
    assert statements.query_id(target, one, "x").split(":")[5] == "7000000"


def test_a_zombie_is_rejected_once_a_newer_epoch_has_fenced(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 50)
    zombie, successor = prepared(target), prepared(target)
    zombie.fence(0, 1)
    put(zombie, target, of)
    successor.fence(0, 2)
    for bad in ((), tuple(range(50, 60))):  # the second has refused records alone: the DLQ is fenced, too
        with pytest.raises(FencedError) as refused:
            put(zombie, target, fenced_range(50, 60), bad=bad)
        assert (refused.value.epoch, refused.value.current) == (1, 2)
    with pytest.raises(FencedError):
        zombie.fence(0, 1)
    put(successor, target, again(of))
    put(successor, target, fenced_range(50, 60, epoch=2))
    assert count(clickhouse) == (60, 60)
    assert count(clickhouse, "orders_dlq") == (0, 0)
    put(zombie, target, fenced_range(0, 5, partition=1))  # which it still owns
    assert count(clickhouse) == (65, 65)


def test_a_fence_says_that_it_is_synchronous_whatever_the_profile_is(clickhouse: ClickHouseDatabase) -> None:
    """With `async_insert=1, wait_for_async_insert=0` a server acknowledges an insert that it has not stored."""
    clickhouse.run(statements.create_fence(clickhouse.database))
    for write in (
        statements.write_fence(clickhouse.database, "k", 7),
        statements.write_fences(clickhouse.database, ["k", "l"], FOR_EVER),
    ):
        assert "SETTINGS async_insert = 0, wait_for_async_insert = 1 VALUES" in write
        clickhouse.server.query(write, async_insert="1", wait_for_async_insert="0")
    for key in ("k", "l"):
        assert int(clickhouse.ask(statements.read_fence(clickhouse.database, key))[0]["max(epoch)"]) == FOR_EVER


def test_every_insert_says_that_it_is_synchronous() -> None:
    settings = statements.insert_settings("t", "q", timeout_ms=1_000)
    assert (settings["async_insert"], settings["wait_for_async_insert"]) == (0, 1)


def test_a_range_of_many_table_partitions_is_stored_once(clickhouse: ClickHouseDatabase) -> None:
    """ClickHouse refuses inserts into more than 100 partitions of a table by default."""
    target, of = target_in(clickhouse), fenced_range(0, 1_000)
    made = create_table(tables.table_of(target)).replace("ORDER BY", "PARTITION BY id % 250\nORDER BY")
    clickhouse.run(made)
    sink = prepared(target)
    put(sink, target, of)
    assert count(clickhouse) == (1_000, 1_000)
    put(sink, target, again(of))
    put(sink, target, of)  # by its token alone
    assert count(clickhouse) == (1_000, 1_000)
    clickhouse.run(f"ALTER TABLE {clickhouse.database}.orders DROP PARTITION 7")  # as if it had not been stored
    put(sink, target, again(of))
    assert count(clickhouse) == (1_000, 1_000)


def test_the_fence_waits_until_nothing_older_runs(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse)
    sink = prepared(target)
    sink.fence(0, 1)
    slow = (
        f"INSERT INTO {clickhouse.database}.orders SELECT number, '', 'p1', 1, 'orders', 0, number FROM numbers(1000) "
        "WHERE sleepEachRow(0.05) = 0 SETTINGS max_block_size = 1, function_sleep_max_microseconds_per_block = 0"
    )
    running = f"SELECT count() AS n FROM system.processes WHERE startsWith(query_id, 'holdfast:{target.fence_key(0)}:')"

    def insert(epoch: int) -> None:
        clickhouse.server.query(slow, query_id=statements.query_id(target, fenced_range(0, 1_000, epoch=epoch), "x"))

    with ThreadPoolExecutor(2) as pool:
        older, own = pool.submit(insert, 1), pool.submit(insert, 2)
        until(lambda: int(clickhouse.ask(running)[0]["n"]) == 2, what="both inserts run")
        assert sink.fence(0, 2) == 2_000_000
        assert int(clickhouse.ask(running)[0]["n"]) == 1  # its own is not older
        assert isinstance(older.exception(timeout=30), HTTPError)
        assert sink.fence(0, 2) == 2_000_001  # the next try of the same epoch
        assert isinstance(own.exception(timeout=30), HTTPError)
    assert int(clickhouse.ask(running)[0]["n"]) == 0


def test_inserts_of_an_earlier_attempt_of_the_same_epoch_are_rejected(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 50)
    sink = prepared(target)
    stray = replace(of, fence=sink.fence(0, 1))
    current = replace(again(of, epoch=1), fence=sink.fence(0, 1))
    put(sink, target, current)
    with pytest.raises(FencedError):
        put(sink, target, stray)
    assert count(clickhouse) == (50, 50)


def test_a_range_is_found_when_its_token_is_forgotten(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse, dedup_window=2), fenced_range(0, 50)
    sink = prepared(target)
    put(sink, target, of, bad=(3,))
    for start in range(50, 100, 10):
        put(sink, target, fenced_range(start, start + 10), bad=(start,))
    put(sink, target, again(of, epoch=1), bad=(3,))
    assert count(clickhouse) == (94, 94)
    assert count(clickhouse, "orders_dlq") == (6, 6)
    put(sink, target, of, bad=(3,))  # without the look
    assert count(clickhouse)[0] == 94 + 49


@pytest.mark.parametrize(
    ("engine", "meanwhile", "rows"),
    [
        ("MergeTree", "replayed", 50),
        ("MergeTree", "deleted", 49),
        ("ReplacingMergeTree", "replayed", 50),
        (
            "ReplacingMergeTree",
            "deleted",
            48,
        ),  # it may have been replaced: a merge would take the older row for the newer
    ],
)
def test_a_range_whose_rows_are_not_those_it_made_is_not_stored_twice_when_its_token_is_forgotten(
    clickhouse: ClickHouseDatabase, engine: str, meanwhile: str, rows: int
) -> None:
    target = target_in(clickhouse, dedup_window=2, engine=engine, order_by=("id", "_partition", "_offset"))
    sink, of = prepared(target), fenced_range(0, 50)
    put(sink, target, of, bad=(7,))
    if meanwhile == "deleted":
        clickhouse.run(f"ALTER TABLE {clickhouse.database}.orders DELETE WHERE id = 3 SETTINGS mutations_sync = 1")
    else:
        clickhouse.run(f"INSERT INTO {clickhouse.database}.orders VALUES (7, 'x', 'p1', 1, 'orders', 0, 7)")
    for start in range(0, 50, 10):
        put(sink, target, fenced_range(start, start + 10, partition=1))
    put(sink, target, again(of), bad=(7,))
    assert count(clickhouse) == (50 + rows, 50 + rows)


def test_a_replayed_dead_letter_is_not_taken_for_its_range(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 50)
    sink = prepared(target)
    put(sink, target, of, bad=(7,))
    assert lose_parts(clickhouse) == 1
    clickhouse.run(f"INSERT INTO {clickhouse.database}.orders VALUES (7, 'x', 'p1', 1, 'orders', 0, 7)")
    put(sink, target, again(of), bad=(7,))
    assert count(clickhouse) == (50, 50)


def test_rows_of_another_revision_are_reported(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 50)
    sink = prepared(target)
    row = "(1, 'x', 'p1', 1, 'orders', 0, 7)"
    clickhouse.run(f"INSERT INTO {clickhouse.database}.orders VALUES {row}, {row}")
    written = put(sink, target, again(of, epoch=1))
    assert len(written.warnings) == 1
    assert "51 rows of 50 records" in written.warnings[0]


def test_a_server_that_dies_after_the_insert_has_it_once(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 2_000)
    sink = prepared(target)
    sink.fence(0, 1)
    put(sink, target, of, bad=(9,))
    clickhouse.server.kill()
    with pytest.raises(BlockedError, match="does not answer"):
        put(sink, target, again(of, epoch=1))
    with pytest.raises(BlockedError):
        sink.fence(0, 2)
    clickhouse.server.start()
    put(sink, target, replace(again(of, epoch=1), may_be_written=False), bad=(9,))  # the token alone
    sink.fence(0, 2)
    put(sink, target, again(of), bad=(9,))
    assert count(clickhouse) == (1_999, 1_999)
    assert count(clickhouse, "orders_dlq") == (1, 1)


def test_a_token_without_its_rows_loses_nothing(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 2_000)
    sink = prepared(target)
    put(sink, target, of, bad=(9,))
    assert lose_parts(clickhouse) + lose_parts(clickhouse, "orders_dlq") == 2
    put(sink, target, of, bad=(9,))
    assert count(clickhouse) == (0, 0)  # so that the token alone would lose them
    for _ in range(2):
        assert put(sink, target, again(of, epoch=1), bad=(9,)).warnings == ()
        assert count(clickhouse) == (1_999, 1_999)
        assert count(clickhouse, "orders_dlq") == (1, 1)


def test_missing_rows_are_inserted_again_whatever_the_tables_name(clickhouse: ClickHouseDatabase) -> None:
    name = "odd{d}'s"
    target, of = target_of(replace_config(clickhouse, table=name)), fenced_range(0, 20)
    sink = prepared(target)
    put(sink, target, of)
    assert lose_parts(clickhouse, name.replace("'", "\\'")) == 1
    put(sink, target, again(of, epoch=1))
    assert count(clickhouse, f"`{name}`") == (20, 20)


def test_the_second_token_may_lack_its_rows_as_well(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 50)
    sink = prepared(target)
    for tries in range(3):
        put(sink, target, replace(of, may_be_written=tries > 0))
        assert count(clickhouse) == (50, 50)
        assert lose_parts(clickhouse) == 1
    put(sink, target, again(of, epoch=1))
    assert count(clickhouse) == (50, 50)


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree"])
def test_of_a_range_in_several_parts_only_the_missing_ones_are_written_again(
    clickhouse: ClickHouseDatabase, engine: str
) -> None:
    target, of = target_in(clickhouse, engine=engine, order_by=("id",)), fenced_range(0, 60)
    clickhouse.run(create_table(tables.table_of(target)).replace("ORDER BY", "PARTITION BY (name, id % 2)\nORDER BY"))
    sink = prepared(target)
    put(sink, target, of)
    assert (parts(clickhouse), count(clickhouse)) == (6, (60, 60))
    assert lose_parts(clickhouse, where="partition LIKE '%n1%'") == 2
    assert count(clickhouse) == (40, 40)
    assert put(sink, target, again(of, epoch=1)).warnings == ()
    assert count(clickhouse) == (60, 60)


def test_a_table_partitioned_by_a_computed_column_gets_missing_rows_again(clickhouse: ClickHouseDatabase) -> None:
    target, of = target_in(clickhouse), fenced_range(0, 60)
    made = create_table(tables.table_of(target)).replace("ORDER BY", "PARTITION BY toYear(at)\nORDER BY")
    clickhouse.run(made.replace("\n)\nENGINE", ",\nat DateTime DEFAULT now()\n)\nENGINE"))
    sink = prepared(target)
    put(sink, target, of)
    assert lose_parts(clickhouse) == 1
    put(sink, target, again(of, epoch=1))
    assert count(clickhouse) == (60, 60)


def test_a_range_that_cannot_be_seen_blocks(clickhouse: ClickHouseDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for written, nor written without end."""
    target, of = target_in(clickhouse), fenced_range(0, 20)
    sink = prepared(target)
    hidden = " AND _offset > 1000"  # as a row policy does
    of_range = statements.of_range
    monkeypatch.setattr(statements, "of_range", lambda *of: of_range(*of) + hidden)
    for _ in range(3):
        with pytest.raises(BlockedError, match="row policy"):
            put(sink, target, again(of, epoch=1))
        assert count(clickhouse) == (80, 20)


def test_a_missing_table_blocks_and_drops_nothing(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse, create_table_if_missing=False)
    sink = ClickHouseSink(target)
    with pytest.raises(BlockedError, match="does not exist"):
        sink.prepare()
    clickhouse.run(create_table(tables.table_of(target)))
    sink.prepare()
    put(sink, target, fenced_range(0, 5))
    clickhouse.run(f"DROP TABLE {clickhouse.database}.orders")
    with pytest.raises(BlockedError, match=r"(?i)unknown.table|does not exist"):
        put(sink, target, fenced_range(5, 10))


def test_a_missing_database_blocks(clickhouse: ClickHouseDatabase) -> None:
    config = replace_config(clickhouse, database="nowhere")
    with pytest.raises(BlockedError, match="nowhere"):
        ClickHouseSink(target_of(config)).prepare()


def replace_config(clickhouse: ClickHouseDatabase, **changes: object) -> ClickHouseConfig:
    return msgspec.structs.replace(clickhouse.config(), **changes)


def test_a_table_without_a_deduplication_window_is_rejected_and_not_changed(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse)
    plain = create_table(tables.table_of(target)).partition("SETTINGS")[0]
    clickhouse.run(plain)
    with pytest.raises(BlockedError, match=f"ALTER TABLE .* MODIFY SETTING {DEDUP_WINDOW_SETTING}"):
        ClickHouseSink(target).prepare()
    clickhouse.run(f"ALTER TABLE {clickhouse.database}.orders MODIFY SETTING {DEDUP_WINDOW_SETTING} = 100")
    assert ClickHouseSink(target).prepare() == (
        "the deduplication window of the table is 100 inserts, 10000 are configured",
    )


def test_a_missing_column_is_reported_with_the_statement_that_adds_it(clickhouse: ClickHouseDatabase) -> None:
    ClickHouseSink(target_in(clickhouse)).prepare()
    wider = target_of(clickhouse.config(), columns=(*COLUMNS, Column("more", "more", "Int64", True)))
    with pytest.raises(BlockedError, match=r"more is missing.*ADD COLUMN IF NOT EXISTS `more`"):
        ClickHouseSink(wider).prepare()


def test_a_view_that_would_count_twice_is_warned_about(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse)
    prepared(target)
    base = clickhouse.database
    clickhouse.run(f"CREATE TABLE {base}.sums (name String, n UInt64) ENGINE = SummingMergeTree ORDER BY name")
    clickhouse.run(
        f"CREATE MATERIALIZED VIEW {base}.view TO {base}.sums AS SELECT name, count() AS n FROM {base}.orders GROUP BY name"
    )
    warnings = ClickHouseSink(target).prepare()
    assert len(warnings) == 1
    assert "`view`" in warnings[0]
    assert f"{base}.sums" in warnings[0]
    clickhouse.run(f"ALTER TABLE {base}.sums MODIFY SETTING {DEDUP_WINDOW_SETTING} = 100")
    assert ClickHouseSink(target).prepare() == ()
    sink = ClickHouseSink(target)
    put(sink, target, fenced_range(0, 30))
    put(sink, target, fenced_range(0, 30))
    assert clickhouse.ask(f"SELECT sum(n) AS n FROM {base}.sums")[0]["n"] in (30, "30")


def test_a_replicated_table_is_at_least_once() -> None:
    table = tables.table_of(target_of(tables_config()))
    has = ExistingTable(
        "ReplicatedMergeTree",
        [ExistingColumn(name, str(kind)) for name, kind in table.columns().items()],
        table.order_by,
    )
    looked = tables.check_table(compare_table(table, has), table, has)
    assert looked.guarantee == AT_LEAST_ONCE
    assert any("at-least-once" in warning for warning in looked.warnings)


@pytest.mark.parametrize("engine", ["SummingMergeTree", "AggregatingMergeTree", "ReplicatedSummingMergeTree"])
def test_an_engine_that_merges_rows_of_several_records_is_at_least_once(engine: str) -> None:
    table = tables.table_of(target_of(tables_config()))
    has = ExistingTable(
        engine, [ExistingColumn(name, str(kind)) for name, kind in table.columns().items()], table.order_by, 10_000
    )
    check = tables.check_table(compare_table(table, has), table, has, unfenced="")
    assert check.guarantee == AT_LEAST_ONCE
    assert check.warnings[-1].startswith(f"at-least-once: {engine} merges rows of different records")


def test_the_oldest_dead_letters_are_deleted_beyond_the_limit(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse)
    sink = prepared(target)
    for start in range(0, 30, 10):
        put(sink, target, fenced_range(start, start + 10), bad=tuple(range(start, start + 10)))
    drift = msgspec.structs.replace(target.revision.drift, dlq_rows_kept=10)
    prepared(replace(target, revision=msgspec.structs.replace(target.revision, drift=drift)))
    until(lambda: count(clickhouse, "orders_dlq") == (10, 10), what="the others are gone")
    kept = clickhouse.ask(f"SELECT min(_offset) AS least FROM {clickhouse.database}.orders_dlq")
    assert int(kept[0]["least"]) == 20
    prepared(replace(target, revision=msgspec.structs.replace(target.revision, drift=drift)))
    assert count(clickhouse, "orders_dlq") == (10, 10)


def test_business_keys_replace_rows(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse, engine="ReplacingMergeTree", order_by=("name",))
    sink = prepared(target)
    put(sink, target, fenced_range(0, 30))
    assert put(sink, target, again(fenced_range(0, 30), epoch=1)).warnings == ()
    assert len(clickhouse.ask(f"SELECT * FROM {clickhouse.database}.orders FINAL")) == 3


@pytest.mark.parametrize("dsn", ["chdb:///tmp/x", "clickhouse://h:9000", "file:///x", "http://"])
def test_only_http_is_a_dsn(dsn: str) -> None:
    with pytest.raises(InvalidError, match="http"):
        parse_dsn(dsn)


def test_a_wrong_password_blocks_and_is_not_shown(clickhouse: ClickHouseDatabase) -> None:
    dsn = f"http://tester:s3cret@{clickhouse.server.host}:{clickhouse.server.port}"
    with pytest.raises(BlockedError) as blocked:
        ClickHouseSink(target_of(replace_config(clickhouse, dsn=dsn))).prepare()
    assert "s3cret" not in str(blocked.value)
