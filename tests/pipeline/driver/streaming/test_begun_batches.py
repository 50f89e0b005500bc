"""A batch that was begun, as the next owner writes it: after an edit of the sink, and into its table. Without Spark."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pyarrow as pa
import pytest
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.sink_values import fenced_range, target_of

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.streaming.batch_writer import BatchTarget, BatchWriter
from holdfast.pipeline.driver.streaming.dead_letters import BadRecords
from holdfast.pipeline.driver.streaming.pieces import encode_rows, store_piece
from holdfast.pipeline.driver.streaming.stream_record import BatchIntent, Piece, StreamRecord
from holdfast.pipeline.mapping.content_hash import rows_hash
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.clickhouse.stream_sink import ClickHouseStreamSink, stream_target
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import FencedError

OFFSETS = "v1\n{}\n"
PIECE = Piece(rows=1, hash="1:ab", body=b"arrow")


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{each}" for each in ids]})


def intent(number: int, *ids: int, revision: int, table: str = "") -> BatchIntent:
    piece = Piece(rows=len(ids), hash=rows_hash(rows(*ids)), body=encode_rows(rows(*ids)))
    return BatchIntent(
        batch=number, epoch=3, revision=revision, output_mode="append", offsets=OFFSETS, pieces=(piece,), table=table
    )


@dataclass
class Recorded:
    """The record of a stream, without a store."""

    record: StreamRecord

    def update(self, change: Callable[[StreamRecord], StreamRecord]) -> StreamRecord:
        self.record = change(self.record)
        return self.record

    def claim(self) -> StreamRecord:
        return self.record


def batch_target(config: ClickHouseConfig, revision: int) -> BatchTarget:
    made = target_of(config)
    made = replace(made, revision=msgspec.structs.replace(made.revision, version=revision))
    return BatchTarget(target=stream_target(made), output_mode="append")


NO_BAD_RECORDS = BadRecords((), ClusterAddress(bootstrap="127.0.0.1:1"), {}, observed=lambda _: None, reads_all=True)


class Takeover:
    """The owner of epoch 4, after an edit of the sink: revision 2 is in force, revision 1 was."""

    def __init__(
        self, former: ClickHouseConfig, current: ClickHouseConfig, *intents: BatchIntent, objects: str = "memory:"
    ) -> None:
        self.targets = {1: batch_target(former, 1), 2: batch_target(current, 2)}
        self.sink = self.targets[2].open()
        self.sink.prepare()
        self.store = Recorded(StreamRecord(epoch=4, intent=intents[0]))
        self.intents = intents
        self.writer = BatchWriter(
            store=self.store,  # type: ignore[arg-type]
            folders=SimpleNamespace(offsets=lambda epoch, batch: OFFSETS, save=lambda epoch: None),  # type: ignore[arg-type]
            target=self.targets[2],
            target_of=self.targets.__getitem__,
            sink=self.sink,
            fence=self.sink.fence(0, 4),
            objects=objects,
            prefix="p/pieces/",
            order_by=(),
            not_null=(),
            bad_records=NO_BAD_RECORDS,
            may_write=lambda: True,
            on_done=lambda batch, count: None,
        )

    def finish(self) -> None:
        """Write every batch as one that was begun."""
        for each in self.intents:
            self.store.record = msgspec.structs.replace(self.store.record, intent=each)
            self.writer.write(MagicMock(), each.batch)
            assert self.store.record.done_batch == each.batch


def former_owner(config: ClickHouseConfig) -> tuple[ClickHouseStreamSink, int]:
    sink = batch_target(config, 1).open()
    sink.prepare()
    return sink, sink.fence(0, 3)


def ids(clickhouse: ClickHouseDatabase, table: str) -> list[int]:
    return [int(row["id"]) for row in clickhouse.ask(f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_batch_that_was_begun_before_the_sink_was_edited_is_fenced_where_it_was_begun(
    clickhouse: ClickHouseDatabase, elsewhere: bool
) -> None:
    former = clickhouse.config()
    if elsewhere:
        database = f"{clickhouse.database}_edited"
        clickhouse.run(f"CREATE DATABASE {database}")
        current = msgspec.structs.replace(former, database=database)
    else:
        current = msgspec.structs.replace(former, table="edited")
    asleep, fence = former_owner(former)
    asleep.insert_piece(fenced_range(0, 1, epoch=3, fence=fence), 0, rows(1, 2))
    takeover = Takeover(former, current, intent(0, 1, 2, revision=1), intent(1, 5, revision=2))
    takeover.finish()
    with pytest.raises(FencedError):
        asleep.insert_piece(fenced_range(0, 1, epoch=3, fence=fence), 1, rows(3))
    assert ids(clickhouse, f"{clickhouse.database}.orders") == [1, 2]
    assert ids(clickhouse, f"{current.database}.{current.table}") == [5]


def test_a_batch_begun_at_a_server_that_is_gone_blocks_with_what_to_do(clickhouse: ClickHouseDatabase) -> None:
    gone = msgspec.structs.replace(clickhouse.config(), dsn="http://127.0.0.1:1")
    takeover = Takeover(gone, clickhouse.config(), intent(0, 1, revision=1))
    with pytest.raises(BlockedError, match=r"batch 0 was begun under revision 1, before the sink was edited: .*rewind"):
        takeover.finish()


def test_a_batch_is_not_finished_in_another_table_of_the_name_it_was_begun_in(clickhouse: ClickHouseDatabase) -> None:
    config = clickhouse.config()
    owner, fence = former_owner(config)
    begun_in = owner.table_id()
    assert begun_in
    owner.insert_piece(fenced_range(0, 1, epoch=3, fence=fence), 0, rows(1, 2))
    takeover = Takeover(config, config, intent(0, 1, 2, revision=2, table=begun_in))
    name = f"{clickhouse.database}.orders"
    clickhouse.run(f"RENAME TABLE {name} TO {name}_before")
    with pytest.raises(BlockedError, match=rf"with id {begun_in}; .* is not there: give that one its name back"):
        takeover.finish()
    clickhouse.run(f"CREATE TABLE {name} AS {name}_before")
    with pytest.raises(BlockedError, match=rf"with id {begun_in}; .* is another one now, with id"):
        takeover.finish()
    assert not ids(clickhouse, name)
    clickhouse.run(f"EXCHANGE TABLES {name} AND {name}_before")
    takeover.finish()
    assert ids(clickhouse, name) == [1, 2]


def test_a_begun_batch_records_the_id_of_its_table(clickhouse: ClickHouseDatabase) -> None:
    takeover = Takeover(clickhouse.config(), clickhouse.config(), intent(0, 1, revision=2))
    begun: list[Any] = []
    takeover.store.update = lambda change: begun.append(change(takeover.store.record)) or begun[-1]  # type: ignore[func-returns-value, method-assign]
    takeover.store.record = StreamRecord(epoch=4)
    takeover.writer.write(MagicMock(), 0)
    assert begun[0].intent.table == takeover.sink.table_id() != ""


def test_what_failed_attempts_have_staged_is_removed_by_the_next(
    clickhouse: ClickHouseDatabase, tmp_path: Path
) -> None:
    """A batch that cannot be written is tried for as long as nobody mends it."""
    objects = f"file://{tmp_path}"
    config = clickhouse.config()

    def staged() -> list[str]:
        return sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.arrow"))

    for _ in range(3):
        takeover = Takeover(config, config, intent(0, 1, revision=2), objects=objects)
        takeover.store.record = StreamRecord(epoch=4)
        frame = MagicMock()
        frame.mapInArrow.side_effect = lambda task, schema: store_piece(task.objects, task.prefix, PIECE) and 1 / 0
        for kept in ("p/pieces/4/1/", "p/pieces/3/0/"):
            store_piece(objects, kept, PIECE)
        with pytest.raises(ZeroDivisionError):
            takeover.writer.write(frame, 0)
    assert [key.rpartition("/")[0] for key in staged()] == [
        *["p/pieces/3/0"] * 3,
        "p/pieces/4/0",
        *["p/pieces/4/1"] * 3,
    ]
