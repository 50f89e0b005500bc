"""The SQL of tables, and what an existing one lacks."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pipeline_values import mapping_of

from holdfast.pipeline.mapping.ddl import TableSpec, create_table
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, compare_table
from holdfast.pipeline.model.column_mapping import Column, Mapping, mapping_errors
from holdfast.vocabulary.errors import InvalidError

MAPPING = mapping_of(ts="DateTime64(3)", id="UInt64", name="String?", tags="Array(String)")


def table(**changes: Any) -> TableSpec:
    return TableSpec(**{"database": "shop", "name": "orders", "mapping": MAPPING, "order_by": ("ts", "id"), **changes})


def existing(*changes: tuple[str, str], engine: str = "MergeTree", window: int = 10_000, **more: str) -> ExistingTable:
    types = {name: str(kind) for name, kind in table().columns().items()} | dict(changes) | more
    return ExistingTable(
        engine, [ExistingColumn(name, text) for name, text in types.items() if text], ("ts", "id"), window
    )


def test_a_table_is_made_with_provenance_and_a_window() -> None:
    assert create_table(table()) == (
        "CREATE TABLE IF NOT EXISTS `shop`.`orders`\n"
        "(\n"
        "    `ts` DateTime64(3),\n"
        "    `id` UInt64,\n"
        "    `name` Nullable(String),\n"
        "    `tags` Array(String),\n"
        "    `_pipeline` LowCardinality(String),\n"
        "    `_generation` UInt32,\n"
        "    `_topic` LowCardinality(String),\n"
        "    `_partition` UInt32,\n"
        "    `_offset` UInt64\n"
        ")\n"
        "ENGINE = MergeTree\n"
        "ORDER BY (`ts`, `id`)\n"
        "SETTINGS non_replicated_deduplication_window = 10000"
    )


def test_every_clause_stands_where_clickhouse_wants_it() -> None:
    made = table(engine="ReplacingMergeTree", version_column="ts", partition_by="toYYYYMM(ts)", window=5, overflow=True)
    text = create_table(made)
    assert "    `_overflow` String,\n    `_pipeline` LowCardinality(String),\n    `_generation` UInt32" in text
    assert text.endswith(
        "ENGINE = ReplacingMergeTree(`ts`)\nPARTITION BY (toYYYYMM(ts))\nORDER BY (`ts`, `id`)\n"
        "SETTINGS non_replicated_deduplication_window = 5"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "Memory"},
        {"engine": "MergeTree ORDER BY tuple() --"},
        {"order_by": ()},
        {"order_by": ("ts", "ts")},
        {"order_by": ("name",)},
        {"order_by": ("tags",)},
        {"order_by": ("ts) SETTINGS x = 1 --",)},
        {"version_column": "ts"},
        {"engine": "ReplacingMergeTree", "version_column": "name"},
        {"engine": "ReplacingMergeTree", "version_column": "nothing"},
        {"partition_by": "toYYYYMM(ts"},
        {"partition_by": "ts) SETTINGS x = 1 --"},
        {"partition_by": "ts, id"},
        {"partition_by": "ts # comment"},
        {"partition_by": "$$x$$"},
        {"ttl": "ts; DROP TABLE x"},
        {"ttl": "ts /* "},
        {"ttl": "'open"},
        {"order_by": ("ts", "toDate(ts")},
        {"order_by": ("ts", "f(a), g(b)")},
        {"primary_key": ("id",)},
        {"primary_key": ("ts", "id", "name")},
        {"engine": "ReplacingMergeTree", "deleted_column": "gone"},
        {"engine": "ReplacingMergeTree", "version_column": "id", "deleted_column": "id"},
        {"engine": "MergeTree", "replica_path": "/x", "replica_name": "r"},
        {"engine": "ReplicatedMergeTree", "replica_path": "/x"},
        {"engine": "ReplicatedMergeTree", "replica_path": "/x') --", "replica_name": "r"},
        {"settings": (("a b", 1),)},
        {"settings": (("index_granularity", float("nan")),)},
        {"settings": (("non_replicated_deduplication_window", 1),)},
        {"cluster": "a\nb"},
        {"window": 0},
        {"name": ""},
        {"database": "a\nb"},
    ],
)
def test_a_table_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        table(**changes)


@settings(deadline=None)
@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_no_name_changes_the_shape_of_a_statement(database: str, name: str, column: str) -> None:
    mapping = Mapping((Column("a", column, "Int64"),))
    try:
        text = create_table(TableSpec(database=database, name=name, mapping=mapping, order_by=(column,)))
    except InvalidError:
        return
    if not list(mapping_errors(mapping)):
        assert skeleton(text) == skeleton(create_table(table(mapping=mapping_of(a="Int64"), order_by=("a",))))


def skeleton(text: str) -> str:
    """A statement with every quoted name as `?`, read character by character as ClickHouse does."""
    out, at = [], 0
    while at < len(text):
        if text[at] != "`":
            out.append(text[at])
            at += 1
            continue
        at += 1
        while text[at] != "`":
            at += 2 if text[at] == "\\" else 1
        out.append("?")
        at += 1
    return "".join(out)


def test_a_table_as_it_should_be_needs_nothing() -> None:
    found = compare_table(table(), existing())
    assert not any((found.missing, found.differs, found.extra, found.statements, found.blockers, found.warnings))


def test_missing_columns_are_added_in_one_statement() -> None:
    found = compare_table(table(), existing(name="", tags=""))
    assert found.missing == ("name", "tags")
    (statement,) = found.statements
    assert statement == (
        "ALTER TABLE `shop`.`orders` ADD COLUMN IF NOT EXISTS `name` Nullable(String), "
        "ADD COLUMN IF NOT EXISTS `tags` Array(String)"
    )


def test_a_column_is_widened_when_nothing_is_lost() -> None:
    found = compare_table(table(), existing(name="String"))
    assert found.statements == ("ALTER TABLE `shop`.`orders` MODIFY COLUMN `name` Nullable(String)",)
    assert not found.blockers


def test_a_column_with_more_room_is_left_alone() -> None:
    found = compare_table(
        table(mapping=mapping_of(ts="DateTime64(3)", id="UInt64", n="Int32")), existing(name="", tags="", n="Int64")
    )
    assert [(each.column, each.fits) for each in found.differs] == [("n", True)]
    assert not found.statements
    assert not found.blockers


@pytest.mark.parametrize(
    ("name", "has", "said"),
    [
        ("name", "Nullable(Int64)", ""),
        ("tags", "Array(Int64)", ""),
        ("tags", "Map(String, String)", ": Map(String, String) cannot become Array(String)"),
        ("name", "Nullable(Point)", "do not write this type"),
        ("name", "Nullable(Enum8('a' = 1))", ""),
        ("id", "UInt32", "ordered by it"),
        ("ts", "DateTime64(6)", ""),
        ("id", "String", ""),
    ],
)
def test_what_would_lose_something_blocks(name: str, has: str, said: str) -> None:
    found = compare_table(table(), existing((name, has)))
    assert len(found.differs) == 1
    assert bool(found.blockers) is bool(said)
    assert said in " ".join(found.blockers)


def test_a_narrower_type_blocks_and_says_what_would_be_lost() -> None:
    wanted = table(mapping=mapping_of(ts="DateTime64(3)", id="UInt64", n="Int64"))
    found = compare_table(wanted, existing(name="", tags="", n="Nullable(Float64)"))
    assert found.blockers == ("n is Nullable(Float64), the mapping says Int64: a change would lose nulls",)


def test_a_column_clickhouse_fills_itself_blocks() -> None:
    has = existing()
    columns = [ExistingColumn("name", "Nullable(String)", "ALIAS") if c.name == "name" else c for c in has.columns]
    found = compare_table(table(), ExistingTable("MergeTree", columns, ("ts", "id"), 10_000))
    assert found.blockers == ("name is ALIAS: it cannot be written",)


def test_a_table_without_a_deduplication_window_gets_one_proposed() -> None:
    found = compare_table(table(), existing(window=0))
    assert found.statements == (
        "ALTER TABLE `shop`.`orders` MODIFY SETTING non_replicated_deduplication_window = 10000",
    )
    assert "stored twice" in found.warnings[0]


def test_an_engine_that_cannot_remember_blocks() -> None:
    assert "only tables of the MergeTree family" in compare_table(table(), existing(engine="Log")).blockers[0]


def test_a_replicated_table_has_a_window_of_its_own() -> None:
    found = compare_table(table(), existing(engine="ReplicatedMergeTree", window=0))
    assert not found.statements
    assert not found.warnings
    short = replace(existing(engine="ReplicatedMergeTree", window=100), window_s=3_600)
    (statement,) = compare_table(table(), short).statements
    assert statement == (
        "ALTER TABLE `shop`.`orders` MODIFY SETTING replicated_deduplication_window = 10000, "
        "replicated_deduplication_window_seconds = 604800"
    )
    assert not compare_table(table(), existing(engine="SharedMergeTree", window=100)).statements


def test_every_option_is_in_the_statement_in_the_order_clickhouse_wants() -> None:
    mapping = mapping_of(ts="DateTime64(3)", id="UInt64", gone="UInt8")
    made = table(
        mapping=mapping,
        engine="ReplicatedReplacingMergeTree",
        replica_path="/clickhouse/tables/{shard}/orders",
        replica_name="{replica}",
        version_column="ts",
        deleted_column="gone",
        partition_by="toYYYYMM(ts)",
        primary_key=("toDate(ts)",),
        order_by=("toDate(ts)", "id"),
        ttl="toDateTime(ts) + INTERVAL 90 DAY",
        settings=(("index_granularity", 1024), ("storage_policy", "it's"), ("ttl_only_drop_parts", True)),
        cluster="main cluster",
    )
    assert create_table(made).startswith("CREATE TABLE IF NOT EXISTS `shop`.`orders` ON CLUSTER `main cluster`\n(")
    assert create_table(made).partition("\nENGINE = ")[2] == (
        "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/orders', '{replica}', `ts`, `gone`)\n"
        "PARTITION BY (toYYYYMM(ts))\n"
        "PRIMARY KEY ((toDate(ts)))\n"
        "ORDER BY ((toDate(ts)), `id`)\n"
        "TTL (toDateTime(ts) + INTERVAL 90 DAY)\n"
        "SETTINGS replicated_deduplication_window = 10000, replicated_deduplication_window_seconds = 604800, "
        "index_granularity = 1024, storage_policy = 'it\\'s', ttl_only_drop_parts = 1"
    )


@pytest.mark.parametrize("engine", ["SharedMergeTree", "SharedReplacingMergeTree", "ReplicatedMergeTree"])
def test_shared_tables_keep_the_window_of_their_service(engine: str) -> None:
    text = create_table(table(engine=engine))
    assert f"ENGINE = {engine}\n" in text
    assert ("SETTINGS" in text) is engine.startswith("Replicated")


def test_changes_go_to_every_server_of_the_cluster() -> None:
    found = compare_table(table(cluster="c"), existing(name="", tags="Array(LowCardinality(String))", window=0))
    assert all(statement.startswith("ALTER TABLE `shop`.`orders` ON CLUSTER `c` ") for statement in found.statements)
    assert len(found.statements) == 2


@pytest.mark.parametrize(
    ("wanted", "has", "statement", "said"),
    [
        ({"ttl": "ts + toIntervalDay(3)"}, {}, "MODIFY TTL (ts + toIntervalDay(3))", "rows beyond it will be deleted"),
        ({"ttl": "ts + toIntervalDay(3)"}, {"ttl": "(ts + toIntervalDay(3))"}, "", ""),
        ({}, {"ttl": "ts + toIntervalDay(3)"}, "", "rows are deleted by it"),
        ({"settings": (("merge_with_ttl_timeout", 5),)}, {}, "MODIFY SETTING merge_with_ttl_timeout = 5", ""),
        ({"settings": (("storage_policy", "a"),)}, {"settings": {"storage_policy": "'a'"}}, "", ""),
        (
            {"settings": (("index_granularity", 5),)},
            {"settings": {"index_granularity": "8192"}},
            "",
            "a table keeps it",
        ),
        (
            {"partition_by": "toYYYYMM(ts)"},
            {},
            "",
            "partitioned in no way, not by toYYYYMM(ts): that cannot be changed",
        ),
        ({"partition_by": "toYYYYMM(ts)"}, {"partition_by": "(toYYYYMM(ts))"}, "", ""),
        (
            {"primary_key": ("ts",)},
            {"primary_key": ("ts", "id")},
            "",
            "primary key is (ts, id): that cannot be changed",
        ),
        ({"order_by": ("toDate(ts)", "id")}, {"sorting_key": ("toDate(ts)", "id")}, "", ""),
        ({"order_by": ("toDate(ts)", "id")}, {}, "", "ordered by (ts, id): that cannot be changed"),
        ({"engine": "ReplicatedMergeTree"}, {}, "", "it is not replicated"),
        (
            {"engine": "ReplacingMergeTree", "version_column": "ts"},
            {"engine": "ReplacingMergeTree"},
            "",
            "version and deletion columns of the table are none: they cannot be changed",
        ),
    ],
)
def test_an_option_that_differs_is_altered_or_said_to_be_fixed(
    wanted: dict[str, Any], has: dict[str, Any], statement: str, said: str
) -> None:
    found = compare_table(table(**wanted), replace(existing(), **has))
    assert found.statements == ((f"ALTER TABLE `shop`.`orders` {statement}",) if statement else ())
    assert bool(found.warnings) is bool(said)
    assert said in " ".join(found.warnings)


def test_a_column_in_an_expression_of_a_key_keeps_its_type() -> None:
    wanted = table(mapping=mapping_of(ts="DateTime64(3)", id="UInt64", name="String?", tags="Array(String)"))
    has = replace(existing(id="UInt32"), sorting_key=("ts", "cityHash64(id)"))
    assert any("ordered by it" in each for each in compare_table(wanted, has).blockers)
    assert not compare_table(wanted, replace(existing(id="UInt32"), sorting_key=("ts", "idx"))).blockers


def test_another_engine_or_key_is_a_warning() -> None:
    found = compare_table(table(order_by=("id",), engine="ReplacingMergeTree"), existing())
    assert len(found.warnings) == 2


def test_unmapped_columns_are_listed() -> None:
    assert [column.name for column in compare_table(table(), existing(("more", "Int8"))).extra] == ["more"]
