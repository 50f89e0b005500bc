"""Batches of streaming queries into ClickHouse, without Spark: neighbours' tables and rows, earlier generations, TTL."""

from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.sink_values import fenced_range, target_of
from tests.support.waiting import until

from holdfast.pipeline.model.query import OutputMode
from holdfast.pipeline.sinks.clickhouse.stream_sink import ClickHouseStreamSink, stream_target
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange
from holdfast.vocabulary.errors import FencedError


def opened(
    clickhouse: ClickHouseDatabase, mode: OutputMode, *, pipeline: str = "p1", generation: int = 1, **config: Any
) -> ClickHouseStreamSink:
    target = replace(target_of(clickhouse.config(**config), pipeline_id=pipeline), generation=generation)
    sink = ClickHouseStreamSink(stream_target(target), mode)
    sink.prepare()
    return sink


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{each}" for each in ids]})


def write(sink: ClickHouseStreamSink, of: FencedRange, *ids: int) -> None:
    sink.begin_batch(of)
    sink.insert_piece(of, 0, rows(*ids))
    sink.finish_batch(of, len(ids))


def ids(clickhouse: ClickHouseDatabase, table: str = "orders") -> list[int]:
    return [int(row["id"]) for row in clickhouse.ask(f"SELECT id FROM {clickhouse.database}.{table} ORDER BY id")]


def batch(number: int, *, epoch: int = 1, fence: int = 0, again: bool = False) -> FencedRange:
    return fenced_range(number, number + 1, epoch=epoch, fence=fence, may_be_written=again)


def test_complete_mode_drops_no_table_but_its_own(clickhouse: ClickHouseDatabase) -> None:
    clickhouse.run(f"CREATE TABLE {clickhouse.database}.orders_next_7 (id Int64) ENGINE = MergeTree ORDER BY id")
    clickhouse.run(f"INSERT INTO {clickhouse.database}.orders_next_7 VALUES (1)")
    sink = opened(clickhouse, "complete")
    for number in range(2):
        write(sink, batch(number, epoch=9), 4, 5)
    assert ids(clickhouse, "orders_next_7") == [1]
    assert ids(clickhouse) == [4, 5]
    left = clickhouse.ask(
        f"SELECT name FROM system.tables WHERE database = '{clickhouse.database}' AND name LIKE '%next%'"
    )
    assert [row["name"] for row in left] == ["orders_next_7"]


def test_complete_mode_replaces_no_rows_of_a_pipeline_that_exists(clickhouse: ClickHouseDatabase) -> None:
    write(opened(clickhouse, "append", pipeline="neighbour"), batch(0), 1, 2)
    sink = opened(clickhouse, "complete")
    with pytest.raises(BlockedError, match="has rows of pipeline neighbour, which output mode complete would remove"):
        sink.check_alone({"neighbour"}.__contains__)
    sink.check_alone(lambda pipeline: False)  # it was deleted
    write(sink, batch(0), 4)
    assert ids(clickhouse) == [4]
    write(opened(clickhouse, "append", pipeline="late"), batch(0), 7)
    with pytest.raises(BlockedError, match="has rows of pipeline late"):
        write(sink, batch(1), 5)
    assert ids(clickhouse) == [4, 7]


@pytest.mark.parametrize("epoch", [1, 4])  # every generation counts its epochs from 1
@pytest.mark.parametrize("mode", ["append", "complete"])
def test_a_sleeper_of_an_earlier_generation_writes_nothing(
    clickhouse: ClickHouseDatabase, mode: OutputMode, epoch: int
) -> None:
    asleep = opened(clickhouse, mode)
    asleep_fence = asleep.fence(0, 3)
    owner = opened(clickhouse, mode, generation=2)
    write(owner, batch(0, epoch=epoch, fence=owner.fence(0, epoch)), 4)
    with pytest.raises(FencedError):
        write(asleep, batch(8, epoch=3, fence=asleep_fence), 1, 2)
    with pytest.raises(FencedError):
        asleep.fence(0, 4)
    assert ids(clickhouse) == [4]


@pytest.mark.parametrize("of_sink", [True, False])
def test_a_piece_of_which_a_ttl_has_deleted_rows_is_written(clickhouse: ClickHouseDatabase, of_sink: bool) -> None:
    ttl = "toDateTime('2001-01-01 00:00:00', 'UTC') + toIntervalYear(if(id < 3, 0, 100))"
    sink = opened(clickhouse, "append", order_by=("id",), ttl=ttl if of_sink else "")
    if not of_sink:
        clickhouse.run(f"ALTER TABLE {clickhouse.database}.orders MODIFY TTL {ttl}")
    sink.insert_piece(batch(0), 0, rows(1, 2, 3, 4))
    clickhouse.run(f"OPTIMIZE TABLE {clickhouse.database}.orders FINAL")
    assert ids(clickhouse) == [3, 4]
    sink.insert_piece(batch(0, again=True), 0, rows(1, 2, 3, 4))
    assert ids(clickhouse) == [3, 4]


def test_a_piece_of_which_somebody_has_deleted_rows_blocks(clickhouse: ClickHouseDatabase) -> None:
    sink = opened(clickhouse, "append", order_by=("id",))
    sink.insert_piece(batch(0), 0, rows(1, 2, 3, 4))
    clickhouse.run(f"ALTER TABLE {clickhouse.database}.orders DELETE WHERE id < 3 SETTINGS mutations_sync = 1")
    with pytest.raises(BlockedError, match="has 2 of its 4 rows"):
        sink.insert_piece(batch(0, again=True), 0, rows(1, 2, 3, 4))


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_a_store_that_knows_fewer_batches_than_the_table_has_is_refused(
    clickhouse: ClickHouseDatabase, mode: OutputMode
) -> None:
    sink = opened(clickhouse, mode)
    sink.check_history(-1)
    write(sink, batch(0), 1)
    write(sink, batch(1), 2)
    sink.check_history(1)
    restored = opened(clickhouse, mode)
    with pytest.raises(
        BlockedError, match=r"has batches up to 1, the store knows those up to 0: .*rewind the pipeline"
    ):
        restored.check_history(0)
    opened(clickhouse, mode, generation=2).check_history(-1)
    opened(clickhouse, mode, pipeline="p2").check_history(-1)


def test_beyond_those_that_are_kept_the_oldest_dead_letters_of_a_query_are_deleted(
    clickhouse: ClickHouseDatabase,
) -> None:
    made = target_of(clickhouse.config())
    drift = msgspec.structs.replace(made.revision.drift, dlq_rows_kept=10)
    target = replace(made, revision=msgspec.structs.replace(made.revision, drift=drift))
    sink = ClickHouseStreamSink(stream_target(target), "append")
    sink.prepare()
    refused = pa.table(
        {
            "topic": ["orders"],
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([1], pa.int64()),
            "key": pa.array([None], pa.binary()),
            "payload": pa.array([b"{"], pa.binary()),
            "reason": ["not JSON"],
        }
    )
    sink.insert_refused(batch(0), 0, refused)
    dlq = f"{clickhouse.database}.orders_dlq"
    clickhouse.run(
        f"INSERT INTO {dlq} (_pipeline, _offset, time) SELECT if(number < 3, 'p2', 'p1'), number, "
        "toDateTime64('2001-01-01 00:00:00', 3) + number FROM numbers(40)"
    )
    sink.prepare()
    left = f"SELECT _pipeline AS p, toUInt32(_offset) AS at FROM {dlq} ORDER BY p, time"
    until(lambda: len(clickhouse.ask(left)) == 13, within_s=60, what="the deletion")
    expected = [*(("p1", at) for at in range(31, 40)), ("p1", 1), *(("p2", at) for at in range(3))]
    assert [(row["p"], row["at"]) for row in clickhouse.ask(left)] == expected
