"""Where sinks write in tests, and the embedded ClickHouse with a database of its own for each test."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.sink_values import COLUMNS, target_of

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.contract import PipelineSink, SinkTarget
from holdfast.pipeline.sinks.factory import open_sink
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server


@dataclass
class SinkDestination:
    """Where one kind of sink writes, and what stands there."""

    name: str
    target: Callable[..., SinkTarget]
    rows: Callable[[], list[dict[str, Any]]]
    refused: Callable[[], list[dict[str, Any]]]

    def sink(self, target: SinkTarget) -> PipelineSink:
        opened = open_sink(target)
        opened.prepare()
        return opened

    def places(self) -> list[tuple[int, int]]:
        """Partition and offset of every row."""
        return sorted((row["_partition"], row["_offset"]) for row in self.rows())


_numbers = itertools.count(1)


@dataclass
class ClickHouseDatabase:
    """A server, and a database of its own for each test."""

    server: ClickHouseServer
    database: str

    def config(self, **more: Any) -> ClickHouseConfig:
        return ClickHouseConfig(dsn=self.server.url, database=self.database, table="orders", **more)

    def ask(self, statement: str) -> list[dict[str, Any]]:
        text = self.server.query(statement + " FORMAT JSONEachRow")
        return [json.loads(line.decode(errors="surrogateescape")) for line in text.splitlines()]

    def run(self, statement: str) -> None:
        self.server.query(statement)

    def place(self) -> SinkDestination:
        def target(columns: tuple[Column, ...] = COLUMNS, **more: Any) -> SinkTarget:
            return target_of(self.config(), columns=columns, **more)

        client = ClickHouseClient(self.server.url, timeout_ms=60_000)

        def rows(table: str) -> list[dict[str, Any]]:
            names = [row["name"] for row in self.ask(f"DESCRIBE {self.database}.{table}")]
            return [dict(zip(names, row, strict=True)) for row in client.rows(f"SELECT * FROM {self.database}.{table}")]

        def refused() -> list[dict[str, Any]]:
            kept = self.ask(f"SELECT _offset, hex(payload) AS payload FROM {self.database}.orders_dlq ORDER BY _offset")
            return [{"_offset": int(row["_offset"]), "payload": bytes.fromhex(row["payload"])} for row in kept]

        return SinkDestination("clickhouse", target, lambda: rows("orders"), refused)


def sink_of(clickhouse: ClickHouseDatabase, **more: Any) -> dict[str, Any]:
    config = {"kind": "clickhouse", "dsn": clickhouse.server.url, "database": clickhouse.database, "table": "orders"}
    return {**config, "batchSize": 400, "batchFlushIntervalMs": 50, **more}


def totals(clickhouse: ClickHouseDatabase, table: str = "orders", column: str = "id") -> tuple[int, int, int]:
    """Rows, distinct records, and the sum of a column."""
    found = clickhouse.ask(
        f"SELECT count() AS n, uniqExact(_generation, _partition, _offset) AS d, sum({column}) AS s "
        f"FROM {clickhouse.database}.{table}"
    )
    return int(found[0]["n"]), int(found[0]["d"]), int(found[0]["s"] or 0)


def lose_parts(clickhouse: ClickHouseDatabase, table: str = "orders", *, where: str = "1") -> int:
    """As a server does that is killed between remembering a token and storing its rows: the part goes, the token stays."""
    query = f"SELECT path FROM system.parts WHERE database = '{clickhouse.database}' AND table = '{table}' AND active AND {where}"
    paths = [Path(row["path"]) for row in clickhouse.ask(query)]
    clickhouse.server.kill()
    for path in paths:
        shutil.rmtree(path)
    clickhouse.server.start()
    return len(paths)


@pytest.fixture(scope="session")
def clickhouse_server_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    pytest.importorskip("chdb")
    with clickhouse_server(tmp_path_factory.mktemp("clickhouse")) as server:
        yield server


@pytest.fixture
def clickhouse(clickhouse_server_process: ClickHouseServer) -> ClickHouseDatabase:
    database = f"db{next(_numbers)}"
    clickhouse_server_process.query(f"CREATE DATABASE {database} ENGINE = Atomic")
    return ClickHouseDatabase(clickhouse_server_process, database)
