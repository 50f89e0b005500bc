"""Delta and Iceberg where a zombie looked at the table before its successor committed."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.file_destinations import delta_place, iceberg_place
from tests.support.sink_destinations import SinkDestination
from tests.support.sink_values import again, fenced_range, put, records_of, target_of, write

from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import DeltaConfig, IcebergConfig
from holdfast.pipeline.sinks.delta import DeltaSink
from holdfast.pipeline.sinks.files import parse_location
from holdfast.pipeline.sinks.iceberg import IcebergSink
from holdfast.vocabulary.errors import InvalidError


def test_a_zombie_that_read_delta_before_its_successor_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delta_place(tmp_path) as place:
        target, of = place.target(), fenced_range(0, 50)
        zombie = place.sink(target)
        assert isinstance(zombie, DeltaSink)
        staged = write(zombie, target, of)
        tables = [zombie._table()]
        fresh = zombie._table
        monkeypatch.setattr(zombie, "_table", lambda: tables.pop() if tables else fresh())
        _succeed(place, target)
        zombie.commit([staged])
        assert not tables
        assert place.places() == [(0, n) for n in range(80)]


def test_a_zombie_that_read_iceberg_before_its_successor_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with iceberg_place(tmp_path) as place:
        target, of = place.target(), fenced_range(0, 50)
        zombie = place.sink(target)
        assert isinstance(zombie, IcebergSink)
        staged = write(zombie, target, of)
        catalog = zombie._open_catalog()
        tables = [catalog.load_table("shop.orders")]
        fresh = catalog.load_table
        monkeypatch.setattr(catalog, "load_table", lambda name: tables.pop() if tables else fresh(name))
        _succeed(place, target)
        zombie.commit([staged])
        assert not tables
        assert place.places() == [(0, n) for n in range(80)]
        snapshots = [each.summary for each in fresh("shop.orders").snapshots() if each.summary is not None]
        assert [each.additional_properties.get("holdfast.ranges") for each in snapshots] == [
            "p1:1:orders:0:0-50",
            "p1:1:orders:0:50-80",
        ]


def _succeed(place: SinkDestination, target: Any) -> None:
    successor = place.sink(target)
    put(successor, target, again(fenced_range(0, 50)))
    put(successor, target, fenced_range(50, 80, epoch=2))


def test_a_partitioned_delta_table_has_its_rows(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    target = target_of(DeltaConfig(url=str(tmp_path / "t"), partition_by=("name",)))
    sink = DeltaSink(target)
    sink.prepare()
    put(sink, target, fenced_range(0, 9))
    put(sink, target, again(fenced_range(0, 9)))
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    rows = table.to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(n, f"n{n % 3}") for n in range(9)]
    assert table.metadata().partition_columns == ["name"]
    only = table.to_pyarrow_table(filters=[("name", "=", "n1")])
    assert sorted(only["id"].to_pylist()) == [1, 4, 7]


FLOATS: list[float | str | None] = ["NaN", 0.0, -0.0, 1.5, None, "Infinity", "-Infinity", "NaN", -0.0, 0.0, 1e300]


def test_a_delta_table_partitioned_by_a_float_has_each_row_once(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    columns = (Column("id", "id", "Int64"), Column("f", "f", "Float64", True))
    target = target_of(DeltaConfig(url=str(tmp_path / "t"), partition_by=("f",)), columns=columns)
    sink = DeltaSink(target)
    sink.prepare()
    values = [msgspec.json.encode({"id": number, "f": value}) for number, value in enumerate(FLOATS)]
    mapped = map_records(target.revision, 1, records_of(values))
    assert not mapped.refused
    sink.commit([sink.write(fenced_range(0, len(FLOATS)), pa.Table.from_batches([mapped.rows]), [])])
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    rows = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    wanted = [None if value is None else float(value) for value in FLOATS]
    assert [row["id"] for row in rows] == list(range(len(FLOATS)))
    assert [repr(abs(row["f"]) if row["f"] == 0 else row["f"]) for row in rows] == [
        repr(abs(value) if value == 0 else value) for value in wanted
    ]
    assert len(table.file_uris()) == len({repr(abs(value) if value == 0 else value) for value in wanted})


def test_an_invalid_lake_config_is_rejected() -> None:
    with pytest.raises(InvalidError, match="file:///"):
        parse_location("ftp://host/x")
    with pytest.raises(InvalidError, match="partition_by"):
        DeltaSink(target_of(DeltaConfig(url="/x", partition_by=("nothing",))))
    with pytest.raises(InvalidError, match="namespace"):
        IcebergSink(target_of(IcebergConfig(catalog_uri="sqlite://", warehouse="/x", table="t")))


def test_a_column_of_another_type_blocks(tmp_path: Path) -> None:
    from holdfast.pipeline.sinks.contract import BlockedError

    for opened in (delta_place, iceberg_place):
        folder = tmp_path / opened.__name__
        folder.mkdir()
        with opened(folder) as place:
            place.sink(place.target())
            other = place.target(columns=(Column("id", "id", "String"), Column("name", "name", "String")))
            with pytest.raises(BlockedError, match="id"):
                place.sink(other)
