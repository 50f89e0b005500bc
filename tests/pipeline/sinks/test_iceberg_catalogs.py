"""Iceberg catalogs by type and options, and partitioned tables."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.object_engines.moto import MotoServer
from tests.support.object_engines.s3 import BUCKET
from tests.support.sink_values import again, fenced_range, put, records_of, target_of

from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import IcebergConfig
from holdfast.pipeline.model.partition_fields import parse_partition_field
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.pipeline.sinks.iceberg import IcebergSink, catalog_properties
from holdfast.vocabulary.errors import InvalidError

pytest.importorskip("pyiceberg")

COLUMNS = (
    Column("id", "id", "Int64"),
    Column("at", "at", "DateTime64(3)", True),
    Column("country", "country", "String", True),
)


def config(folder: Path, **more: Any) -> IcebergConfig:
    return IcebergConfig(
        catalog_uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "w"), table="shop.orders", **more
    )


def rows_of(sink: IcebergSink) -> Any:
    return sink._open_catalog().load_table("shop.orders").scan().to_arrow()


def test_what_pyiceberg_is_given_by_type() -> None:
    sql = IcebergConfig(catalog_uri="sqlite:///c.db", warehouse="/w", table="a.b")
    assert catalog_properties(sql) == {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "file:///w"}
    options = {"credential": "id:secret", "s3.region": "eu"}
    rest = IcebergConfig(catalog="rest", catalog_uri="http://c", warehouse="prod", table="a.b", catalog_options=options)
    assert catalog_properties(rest) == {"type": "rest", "uri": "http://c", "warehouse": "prod", **options}
    glue = IcebergConfig(catalog="glue", table="a.b", catalog_options={"glue.region": "eu"})
    assert catalog_properties(glue) == {"type": "glue", "glue.region": "eu"}
    assert "secret" not in repr(rest)
    assert hash(rest) != hash(glue)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("country", "country"), (" day( at )", "day(at)"), ("truncate(4,country)", "truncate(4, country)")],
)
def test_a_partition_field_is_parsed(text: str, shown: str) -> None:
    assert str(parse_partition_field(text)) == shown


@pytest.mark.parametrize("text", ["bucket(16, id)", "truncate(0, id)", "week(at)", "", "day()"])
def test_a_partition_field_that_cannot_be_derived_from_a_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="truncate\\(width, c\\)"):
        parse_partition_field(text)


def test_a_partitioned_table_has_each_row_once_in_its_partition(tmp_path: Path) -> None:
    fields = ("day(at)", "country", "truncate(10, id)")
    target = target_of(config(tmp_path, partition_by=fields), columns=COLUMNS)
    sink = IcebergSink(target)
    sink.prepare()
    sink.prepare()  # finds its own spec
    values: list[dict[str, Any]] = [
        {
            "id": number,
            "at": f"2026-11-{1 + number % 3:02d}T10:00:00Z" if number % 5 else None,
            "country": "ab"[number % 2],
        }
        for number in range(40)
    ]
    values[7]["country"] = None
    mapped = map_records(target.revision, 1, records_of([msgspec.json.encode(value) for value in values]))
    rows, of = pa.Table.from_batches([mapped.rows]), fenced_range(0, 40)
    sink.commit([sink.write(of, rows, [])])
    sink.commit([sink.write(again(of), rows, [])])
    table = sink._open_catalog().load_table("shop.orders")
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["country"]) for row in found] == [(value["id"], value["country"]) for value in values]
    assert [str(field.transform) for field in table.spec().fields] == ["day", "identity", "truncate[10]"]
    only = table.scan(row_filter="country == 'a' and at >= '2026-11-02T00:00:00+00:00'").to_arrow()
    wanted = [value["id"] for value in values if value["country"] == "a" and (value["at"] or "") >= "2026-11-02"]
    assert sorted(only["id"].to_pylist()) == wanted
    missing = table.scan(row_filter="country is null").to_arrow()
    assert missing["id"].to_pylist() == [7]
    sink.close()


def test_a_table_with_another_spec_blocks(tmp_path: Path) -> None:
    target = target_of(config(tmp_path), columns=COLUMNS)
    sink = IcebergSink(target)
    sink.prepare()
    mapped = map_records(target.revision, 1, records_of([b'{"id": 1}']))
    sink.commit([sink.write(fenced_range(0, 1), pa.Table.from_batches([mapped.rows]), [])])
    sink.close()
    other = IcebergSink(target_of(config(tmp_path, partition_by=("country",)), columns=COLUMNS))
    with pytest.raises(BlockedError, match="partitioned by nothing, not by"):
        other.prepare()
    other.close()


def test_a_float_is_no_partition(tmp_path: Path) -> None:
    columns = (Column("f", "f", "Float64"),)
    with pytest.raises(InvalidError, match="no float"):
        IcebergSink(target_of(config(tmp_path, partition_by=("f",)), columns=columns))


def test_a_table_of_a_glue_catalog_in_s3(tmp_path: Path) -> None:
    """moto answers as Glue and as S3."""
    pytest.importorskip("boto3")
    pytest.importorskip("flask")
    with MotoServer(tmp_path).running() as server:
        url = f"http://127.0.0.1:{server.port}"
        keys = {"access-key-id": "x", "secret-access-key": "y", "region": "us-east-1", "endpoint": url}
        options = {f"{service}.{name}": value for service in ("glue", "s3") for name, value in keys.items()}
        glue = IcebergConfig(catalog="glue", warehouse=f"s3://{BUCKET}/w", table="shop.orders", catalog_options=options)
        target = target_of(glue)
        sink = IcebergSink(target)
        sink.prepare()
        put(sink, target, fenced_range(0, 9), bad=(3,))
        put(sink, target, again(fenced_range(0, 9)), bad=(3,))
        assert sorted(rows_of(sink)["id"].to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8]
        sink.close()
