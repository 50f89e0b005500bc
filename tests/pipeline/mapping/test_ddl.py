"""The SQL of tables, and what an existing one lacks."""

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
    made = table(
        engine="ReplacingMergeTree", version_column="ts", partition_by=("toYYYYMM", "ts"), window=5, overflow=True
    )
    text = create_table(made)
    assert "    `_overflow` String,\n    `_pipeline` LowCardinality(String),\n    `_generation` UInt32" in text
    assert text.endswith(
        "ENGINE = ReplacingMergeTree(`ts`)\nPARTITION BY toYYYYMM(`ts`)\nORDER BY (`ts`, `id`)\n"
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
        {"partition_by": ("now", "ts")},
        {"partition_by": ("toYYYYMM", "id")},
        {"partition_by": ("toYYYYMM", "nothing")},
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


def test_a_replicated_table_is_warned_about() -> None:
    found = compare_table(table(), existing(engine="ReplicatedMergeTree", window=0))
    assert not found.statements
    assert len(found.warnings) == 1


def test_another_engine_or_key_is_a_warning() -> None:
    found = compare_table(table(order_by=("id",), engine="ReplacingMergeTree"), existing())
    assert len(found.warnings) == 2


def test_unmapped_columns_are_listed() -> None:
    assert [column.name for column in compare_table(table(), existing(("more", "Int8"))).extra] == ["more"]
