"""Keys, TTL, settings and engines of a table, made, compared and changed on the embedded ClickHouse."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.sink_values import COLUMNS, again, fenced_range, put, target_of

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.pipeline.mapping.ddl import create_table
from holdfast.pipeline.mapping.table_diff import compare_table
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.service import validation
from holdfast.pipeline.sinks.clickhouse import tables
from holdfast.pipeline.sinks.clickhouse.existing_tables import describe_table, read_engine
from holdfast.pipeline.sinks.clickhouse.expressions import normalized
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import BlockedError, SinkTarget
from holdfast.vocabulary.errors import InvalidError

WITH_TIME = (
    *COLUMNS,
    Column("$timestamp", "at", "DateTime('UTC')"),
    Column("gone", "gone", "UInt8", when_null="default"),
)
OPTIONS: dict[str, Any] = {
    "engine": "ReplacingMergeTree",
    "version_column": "_offset",
    "deleted_column": "gone",
    "partition_by": "(toYYYYMM(at),   id%2)",
    "order_by": ("toDate(at)", "cityHash64( id, name )", "id"),
    "primary_key": ("toDate(at)",),
    "ttl": "at + INTERVAL 3 YEAR",
    "table_settings": {"index_granularity": 1024, "ttl_only_drop_parts": True, "merge_with_ttl_timeout": 7200},
}


def target_in(clickhouse: ClickHouseDatabase, **more: Any) -> SinkTarget:
    return target_of(clickhouse.config(**more), columns=WITH_TIME)


def connection_to(clickhouse: ClickHouseDatabase) -> ClickHouseClient:
    return ClickHouseClient(clickhouse.server.url, timeout_ms=60_000)


def test_a_table_with_every_option_is_made_and_found_as_it_should_be(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse, **OPTIONS)
    sink = ClickHouseSink(target)
    assert sink.prepare() == ()
    assert sink.prepare() == ()
    table = normalized(connection_to(clickhouse), tables.table_of(target))
    has = describe_table(connection_to(clickhouse), table)
    assert has is not None
    found = compare_table(table, has)
    assert not any((found.missing, found.differs, found.extra, found.statements, found.blockers, found.warnings))
    assert tuple(has.arguments) == ("_offset", "gone")
    assert tuple(has.sorting_key) == ("toDate(at)", "cityHash64(id, name)", "id")
    assert has.settings["index_granularity"] == "1024"


def test_what_a_diff_of_options_proposes_is_carried_out(clickhouse: ClickHouseDatabase) -> None:
    plain = target_in(clickhouse)
    clickhouse.run(create_table(tables.table_of(plain)))
    connection = connection_to(clickhouse)
    wanted = normalized(
        connection,
        tables.table_of(
            target_in(clickhouse, ttl="at + INTERVAL 5 DAY", table_settings={"merge_with_ttl_timeout": 60})
        ),
    )
    found = validation.compare(connection, wanted)
    assert found is not None
    assert len(found.statements) == 2
    for statement in found.statements:
        clickhouse.run(statement)
    left = validation.compare(connection, wanted)
    assert left is not None
    assert not left.statements
    assert not left.warnings


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partition_by": "toYYYYMM(nothing)"}, "sink.partitionBy"),
        ({"ttl": "at + + INTERVAL"}, "sink.ttl"),
        ({"order_by": ("no_such_function(at)",)}, "sink.orderBy"),
        ({"partition_by": "at SETTINGS max_threads = 1"}, "sink.partitionBy"),
        ({"partition_by": "at FROM system.one"}, "sink.partitionBy"),
    ],
)
def test_an_expression_that_the_server_does_not_take_is_named(
    clickhouse: ClickHouseDatabase, options: dict[str, Any], named: str
) -> None:
    target = target_in(clickhouse, **options)
    with pytest.raises(InvalidError, match=named):
        normalized(connection_to(clickhouse), tables.table_of(target))
    with pytest.raises(BlockedError, match=named):
        ClickHouseSink(target).prepare()
    assert not clickhouse.ask(
        f"SELECT 1 FROM system.tables WHERE database = '{clickhouse.database}' AND name = 'orders'"
    )
    checked = validation.validate_table(
        clickhouse.config(**options), tables.table_of(target), connection_to(clickhouse)
    )
    assert not checked.ok
    assert any(check.name == "expressions" and check.outcome == "failed" for check in checked.checks)


def test_rows_that_a_ttl_has_deleted_are_not_written_again(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(
        clickhouse, ttl="toDateTime('2001-01-01 00:00:00', 'UTC') + toIntervalSecond(id % 2)", partition_by="id % 2"
    )
    sink = ClickHouseSink(target)
    sink.prepare()
    of = fenced_range(0, 30)
    put(sink, target, of)
    clickhouse.run(f"OPTIMIZE TABLE {clickhouse.database}.orders FINAL")
    assert clickhouse.ask(f"SELECT count() AS n FROM {clickhouse.database}.orders")[0]["n"] in (0, "0")
    written = put(sink, target, again(of, epoch=1))
    assert written.warnings  # that they are not there is said, and does not block
    assert clickhouse.ask(f"SELECT count() AS n FROM {clickhouse.database}.orders")[0]["n"] in (0, "0")


def test_rows_within_their_ttl_are_completed(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(
        clickhouse, ttl="toDateTime('2105-01-01 00:00:00', 'UTC') + toIntervalSecond(id % 2)", partition_by="id % 2"
    )
    sink = ClickHouseSink(target)
    sink.prepare()
    of = fenced_range(0, 30)
    put(sink, target, of)
    clickhouse.run(f"ALTER TABLE {clickhouse.database}.orders DROP PARTITION 1")
    assert put(sink, target, again(of, epoch=1)).warnings == ()
    found = clickhouse.ask(f"SELECT count() AS n, uniqExact(_offset) AS d FROM {clickhouse.database}.orders")
    assert (int(found[0]["n"]), int(found[0]["d"])) == (30, 30)


@pytest.mark.parametrize(
    ("full", "arguments", "ttl", "settings"),
    [
        ("MergeTree ORDER BY a", (), "", {}),
        ("MergeTree ORDER BY a SETTINGS index_granularity = 8192", (), "", {"index_granularity": "8192"}),
        (
            "ReplicatedReplacingMergeTree('/a, (b)/{s}', '{replica}', v, `is d`) PARTITION BY f(at) ORDER BY (a, f(b)) "  # noqa: ISC004
            "TTL at + toIntervalDay(1) SETTINGS storage_policy = 'a, b = c', index_granularity = 1",
            ("v", "is d"),
            "at + toIntervalDay(1)",
            {"storage_policy": "'a, b = c'", "index_granularity": "1"},
        ),
        ("SharedMergeTree('/x', '{replica}') ORDER BY tuple()", (), "", {}),
        ("Log", (), "", {}),
    ],
)
def test_an_engine_is_read_as_the_server_prints_it(
    full: str, arguments: tuple[str, ...], ttl: str, settings: dict[str, str]
) -> None:
    assert read_engine(full) == (arguments, ttl, settings)


def test_a_cluster_that_is_not_there_is_said_by_the_server(clickhouse: ClickHouseDatabase) -> None:
    target = target_in(clickhouse, cluster="nowhere")
    with pytest.raises(BlockedError, match=r"(?i)cluster.*nowhere"):
        ClickHouseSink(target).prepare()
    table = replace(tables.table_of(target), cluster="")
    clickhouse.run(create_table(table))
