"""Every sink behind one noun, so that one suite holds all of them to the contract."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.sink_destinations import SinkDestination, clickhouse, clickhouse_server_process  # noqa: F401 (fixtures)
from tests.support.sink_values import COLUMNS, target_of

from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import DeltaConfig, IcebergConfig, ParquetConfig
from holdfast.pipeline.sinks.contract import SinkTarget


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.rglob("*.parquet")) for row in pq.ParquetFile(file).read().to_pylist()]


@contextmanager
def parquet_place(folder: Path) -> Iterator[SinkDestination]:
    def target(columns: tuple[Column, ...] = COLUMNS, **more: Any) -> SinkTarget:
        return target_of(ParquetConfig(url=folder.as_uri()), columns=columns, **more)

    yield SinkDestination(
        "parquet",
        target,
        lambda: [row for part in folder.glob("generation=*") for row in parquet_rows(part)],
        lambda: parquet_rows(folder / "_dlq"),
    )


@contextmanager
def delta_place(folder: Path) -> Iterator[SinkDestination]:
    deltalake = pytest.importorskip("deltalake")

    def target(columns: tuple[Column, ...] = COLUMNS, **more: Any) -> SinkTarget:
        return target_of(DeltaConfig(url=str(folder / "table")), columns=columns, **more)

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = deltalake.DeltaTable(str(folder / "table")).to_pyarrow_table().to_pylist()
        return found

    yield SinkDestination("delta", target, rows, lambda: parquet_rows(folder / "table" / "_dlq"))


@contextmanager
def iceberg_place(folder: Path) -> Iterator[SinkDestination]:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    uri = f"sqlite:///{folder}/catalog.db"
    config = IcebergConfig(catalog_uri=uri, warehouse=str(folder / "warehouse"), table="shop.orders")

    def target(columns: tuple[Column, ...] = COLUMNS, **more: Any) -> SinkTarget:
        return target_of(config, columns=columns, **more)

    def rows() -> list[dict[str, Any]]:
        catalog = sql.SqlCatalog("holdfast", uri=uri, warehouse=f"file://{folder}/warehouse")
        try:
            found: list[dict[str, Any]] = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
        finally:
            catalog.close()
        return found

    yield SinkDestination(
        "iceberg", target, rows, lambda: parquet_rows(folder / "warehouse" / "shop" / "orders" / "_dlq")
    )


PLACES = {"parquet": parquet_place, "delta": delta_place, "iceberg": iceberg_place}


@pytest.fixture(params=["clickhouse", *PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkDestination]:
    if request.param == "clickhouse":
        yield request.getfixturevalue("clickhouse").place()
        return
    with ExitStack() as stack:
        yield stack.enter_context(PLACES[request.param](tmp_path))
