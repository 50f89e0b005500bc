"""A pipeline as a project of Spark Declarative Pipelines: what is written, and what is said to be missing."""

import ast
from dataclasses import replace

from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    DriftPolicy,
    FiltersConfig,
    KafkaConfig,
    ParquetConfig,
    Security,
    TopicSinkConfig,
)
from holdfast.pipeline.service.declarative_project import PipelineParts, export_project

PARTS = PipelineParts(
    name="my-orders",
    source=KafkaConfig(topic="orders"),
    sink=ClickHouseConfig(dsn="http://u:***@ch:8123/shop", database="shop", table="orders", order_by=("id",)),
    mapping=Mapping(
        (
            Column("id", "id", "Int64"),
            Column("user.name", "user name", "String", nullable=True),
            Column("tags", "tags", "Array(String)", when_null="default"),
            Column("lines[0].price", "price", "Decimal(18, 2)", nullable=True),
            Column("$timestamp", "at", "DateTime64(3)", nullable=True),
        )
    ),
    filters=FiltersConfig(enabled=True, expression="number(total) > 0"),
    sql="",
    drift=DriftPolicy(),
)


def code_of(parts: PipelineParts) -> str:
    (code,) = (text for name, text in export_project(parts, "file:///s").files.items() if name.endswith(".py"))
    ast.parse(code)
    return code


def test_a_pipeline_becomes_a_view_a_sink_and_a_flow() -> None:
    export = export_project(PARTS, "file:///p/storage")
    assert export.missing == []
    assert set(export.files) == {"spark-pipeline.yml", "transformations/my_orders.py"}
    assert "storage: file:///p/storage\n" in export.files["spark-pipeline.yml"]
    code = code_of(PARTS)
    for line in (
        '.option("topics", "orders")',
        '.option("startingOffsets", "earliest")',
        "try_variant_get(record, '$.total', 'double') > 0",
        "\"try_variant_get(record, '$.id', 'bigint') AS `id`\",",
        "\"try_variant_get(record, '$.user.name', 'string') AS `user name`\",",
        "coalesce(try_variant_get(record, '$.tags', 'array<string>'), CAST(array() AS array<string>)) AS `tags`",
        "try_variant_get(record, '$.lines[0].price', 'decimal(18, 2)') AS `price`",
        '"CAST(timestamp AS timestamp) AS `at`",',
        'return rows.where("`id` IS NOT NULL")',
        'dp.create_sink("my_orders_sink", "holdfast.clickhouse", {',
        '"table": "orders_sdp",',
        '"orderBy": "`id`",',
    ):
        assert line in code
    assert "***" not in code
    assert "- rows go to the table orders_sdp" in code


def test_what_has_no_equal_is_said() -> None:
    parts = replace(
        PARTS,
        source=KafkaConfig(
            topic="o", brokers=("a:9092", "b:9092"), security=Security(protocol="SSL"), start="2026-11-15T08:30:00Z"
        ),
        sink=ParquetConfig(url="s3://bucket/x"),
        mapping=Mapping(
            (Column("id", "id", "Int64"), Column("lines[].sku", "skus", "Array(String)", when_null="default"))
        ),
        filters=FiltersConfig(enabled=True, expression="matches(status, '^p')"),
        sql="SELECT id\nFROM rows",
        drift=DriftPolicy(unknown_fields="stop"),
    )
    export = export_project(parts, "file:///s")
    assert [each.partition(":")[0] for each in export.missing] == [
        "source.security",
        "source.start",
        "filters.expression",
        "mapping",
        "sink",
        "sql",
    ]
    code = code_of(parts)
    assert '.option("kafka.bootstrap.servers", "a:9092,b:9092")' in code
    for each in export.missing:
        assert f"- MISSING {each}" in code
    assert "fields without a column are ignored (the pipeline: stop)" in code


def test_texts_of_the_pipeline_cannot_break_the_code() -> None:
    odd = "a\"b'c\\d\n`e"
    parts = replace(
        PARTS,
        name='"""odd"""',
        source=KafkaConfig(topic=odd),
        sink=TopicSinkConfig(topic=odd, key_column=odd),
        mapping=Mapping((Column("id", odd, "Int64"),)),
        filters=FiltersConfig(enabled=True, expression="status = 'x\\'y' or matches(a, '\"\"\"')"),
    )
    code = code_of(parts)
    literals = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    assert odd in literals
    assert "to_json(struct(*)) AS value" in literals
