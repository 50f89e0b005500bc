"""The parts of `format("holdfast.clickhouse")` without Spark: a table, batches that are committed, connections that fail."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseUnreachableError
from holdfast.spark.clickhouse.committer import Committer
from holdfast.spark.clickhouse.options import parse_options
from holdfast.spark.clickhouse.scopes import WriteIdentity, WriterScope
from holdfast.spark.clickhouse.stager import RowStager, StagedRows
from holdfast.spark.clickhouse.target import prepare_target
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

SCHEMA = StructType([StructField("id", LongType(), nullable=False), StructField("name", StringType())])


def rows_of(ids: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "name": pa.array([None if n % 3 else f"n{n}" for n in ids], pa.string())}
    )


class LosingClient(ClickHouseClient):
    """Loses the answer to the next statement that contains a text: the server has run it, or (`before`) has not."""

    def __init__(self, dsn: str, *, timeout_ms: int = 60_000) -> None:
        super().__init__(dsn, timeout_ms=timeout_ms)
        self.losing, self.before, self.lost = "", False, 0

    def command(self, statement: str, *, settings: Mapping[str, str | int] | None = None) -> None:
        self._losing(statement, lambda: super(LosingClient, self).command(statement, settings=settings))

    def insert(self, statement: str, data: Any, *, settings: Mapping[str, str | int]) -> None:
        self._losing(statement, lambda: super(LosingClient, self).insert(statement, data, settings=settings))

    def _losing(self, statement: str, run: Callable[[], None]) -> None:
        lose = self.losing and self.losing in statement
        if lose:
            self.losing, self.lost = "", self.lost + 1
        if not (lose and self.before):
            run()
        if lose:
            raise ClickHouseUnreachableError(self.address, "the answer was lost")


@dataclass
class TableUnderTest:
    """A table in the embedded server, and what drivers and tasks do to it."""

    server: ClickHouseServer
    database: str
    options: dict[str, str] = field(default_factory=dict)
    replaces: bool = False

    def __post_init__(self) -> None:
        given = {"url": self.server.url, "table": f"{self.database}.t", "orderBy": "id", **self.options}
        self.parsed = parse_options(given)
        self.client = LosingClient(self.parsed.dsn)
        self.target = prepare_target(self.client, self.parsed, SCHEMA)

    def stage(self, identity: WriteIdentity, batches: Sequence[pa.RecordBatch]) -> StagedRows:
        return RowStager(self.client, self.target, self.parsed, identity.staged_batch, SystemRandom()).stage_all(
            iter(batches)
        )

    def commit(self, identity: WriteIdentity, *tasks: Sequence[int]) -> None:
        staged = [self.stage(identity, [rows_of(ids)]) for ids in tasks]
        self.commit_staged(identity, staged)

    def commit_staged(self, identity: WriteIdentity, staged: Sequence[StagedRows]) -> None:
        committer = Committer(
            self.client, self.target, self.parsed, replaces=self.replaces, clock=RealClock(), random=SystemRandom()
        )
        committer.commit(identity, staged)

    def ids(self) -> list[int]:
        return [int(row[0]) for row in self.client.rows(f"SELECT id FROM {self.target.full_name} ORDER BY id")]

    def staged_rows(self) -> int:
        return int(self.client.value(f"SELECT count() FROM {self.target.staged.full_name}"))


def batch_of(
    batch: int, *, run: str = "run-1", query: str = "q", scope: str = "query/q", generation: int | None = 0
) -> WriteIdentity:
    return WriteIdentity(scope=WriterScope(scope, generation), query=query, run=run, batch=batch)
