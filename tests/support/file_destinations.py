"""Destinations of the sinks that write files: Parquet, Delta, Iceberg."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.sink_destinations import SinkDestination
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
