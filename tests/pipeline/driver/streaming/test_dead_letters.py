"""Records that the sources of a query cannot decode: each is a dead letter once, whatever stops the owner, and never a row."""

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.format_examples import format_example
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import (
    WINDOWED,
    StreamSlot,
    event,
    events,
    source,
    stream_pipeline,
    stream_sink,
    windows,
)

from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.dead_letters import BadRecords, Fingerprint
from holdfast.pipeline.driver.streaming.stream_record import TopicRange
from holdfast.pipeline.model.query import StreamSource
from holdfast.vocabulary.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # a cold JVM on a busy machine

BAD = [b"{not JSON", None, b'{"id": "seven", "at": 1767225600, "kind": "k0", "amount": "1.25"}', b"[1]"]
REASONS = ["not JSON", "the record has no value", "not of the type in the schema: id", "not of the type"]


def dead_letters(clickhouse: ClickHouseDatabase) -> list[dict[str, Any]]:
    found = clickhouse.ask(
        "SELECT _topic, _partition, toUInt32(_offset) AS _offset, reason, payload "
        f"FROM {clickhouse.database}.result_dlq ORDER BY _topic, _partition, _offset"
    )
    return [
        {**row, "payload": None if row["payload"] is None else row["payload"].encode(errors="surrogateescape")}
        for row in found
    ]


@pytest.mark.parametrize(
    "steps", [("begun", "dlq-inserted"), pytest.param(("staged", "inserted", "done"), marks=pytest.mark.long)], ids=str
)
def test_bad_records_are_dead_letters_once_and_the_rest_is_exact(
    steps: tuple[str, ...], world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    query = {"sources": [source(topic, "orders")], "sql": WINDOWED.format(orders="orders")}
    pipeline = stream_pipeline(world, stream_sink(clickhouse), query)
    for number, step in enumerate(steps):
        good = events(range(number * 60, number * 60 + 60))
        world.produce(topic, [*good[:30], *BAD, *good[30:]])
        StreamSlot(world, jobs, pipeline, f"owner{number}").fail_at(f"stream.{step}")
    world.produce(topic, [event(9_000, second=100_000)])
    records = len(steps) * 64 + 1
    successor = StreamSlot(world, jobs, pipeline, "successor")
    successor.run_until(successor.has_read(**{topic: records}))
    successor.run_until(lambda: len(windows(clickhouse)) == 3 * len(steps))
    assert sum(n for n, _ in windows(clickhouse).values()) == 60 * len(steps)
    found = dead_letters(clickhouse)
    assert [row["_offset"] for row in found] == [64 * at + 30 + n for at in range(len(steps)) for n in range(len(BAD))]
    assert [row["payload"] for row in found] == BAD * len(steps)
    for row, reason in zip(found, REASONS * len(steps), strict=True):
        assert reason in row["reason"]


@pytest.mark.parametrize(
    "name",
    [
        "avro",
        "csv",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("json-registry", "avro-local", "protobuf")),
    ],
)
def test_values_of_every_format_are_fields_of_the_view_and_bad_ones_dead_letters(
    name: str, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    with format_example(name) as example:
        config = msgspec.to_builtins(example.source(topic))
        view = {"topic": topic, "name": "orders", "format": config["format"], "valueSchema": config["schema"]}
        view |= {each: config[each] for each in ("schemaRegistry", "message", "csv", "raw")}
        schema = "id BIGINT, at TIMESTAMP, total DECIMAL(12, 2), name STRING"
        query = {
            "sources": [{**view, "schema": schema}],
            "sql": "SELECT id, at, total, name, _offset AS place FROM orders",
        }
        pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["place"]), query)
        world.produce(topic, [*map(example.encode, range(20)), None, *map(example.encode, range(20, 40))])
        slot = StreamSlot(world, jobs, pipeline, "ann")
        slot.run_until(slot.has_read(**{topic: 41}))
    rows = clickhouse.ask(f"SELECT * FROM {clickhouse.database}.result ORDER BY place")
    assert [int(row["place"]) for row in rows] == [*range(20), *range(21, 41)]
    assert [int(row["id"]) for row in rows] == list(range(40))
    assert [float(row["total"]) for row in rows] == [number + 0.5 for number in range(40)]
    assert [row["name"] for row in rows] == [f"n{number}" if number % 2 else None for number in range(40)]
    assert {str(row["at"])[:17] for row in rows} == {"2026-11-15 08:30:"}
    assert [(row["_offset"], row["reason"]) for row in dead_letters(clickhouse)] == [(20, "the record has no value")]
    assert slot.processor.progress().dlq_rows == 1


def test_with_bad_records_null_a_record_is_a_row_of_nulls(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    orders = {**source(topic, "orders"), "badRecords": "null", "watermark": {}}
    query = {"sources": [orders], "sql": "SELECT id, kind, _offset AS place FROM orders"}
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["place"]), query)
    world.produce(topic, [b"{", event(1)])
    slot = StreamSlot(world, jobs, pipeline, "ann")
    slot.run_until(slot.has_read(**{topic: 2}))
    rows = clickhouse.ask(f"SELECT id, kind FROM {clickhouse.database}.result ORDER BY place")
    assert [(row["id"] and int(row["id"]), row["kind"]) for row in rows] == [(None, None), (1, "k1")]


def test_rows_of_csv_whose_texts_are_no_values_of_their_types_are_dead_letters_with_their_columns(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    schema = "id BIGINT, at TIMESTAMP, ok BOOLEAN, tags ARRAY<STRING>"
    view = {"topic": topic, "name": "rows", "format": "csv", "csv": {"columns": ["id", "at", "ok", "tags"]}}
    query = {
        "sources": [{**view, "schema": schema}],
        "sql": "SELECT id, ok, array_size(tags) AS tags, _offset AS place FROM rows",
    }
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["place"]), query)
    rows = [
        b'1,2026-01-02T03:04:05Z,true,"[""a"",""b""]"',
        b"seven,2026-01-02T03:04:05Z,true,[]",
        b"3,,,",
        b"4.5,yesterday,true,[]",
        b"5,2026-01-02 03:04:05,maybe,[]",
        b"9223372036854775808,,,",
        b"6,2026-01-02T03:04:05Z,false,[]",
    ]
    world.produce(topic, rows)
    slot = StreamSlot(world, jobs, pipeline, "ann")
    slot.run_until(slot.has_read(**{topic: len(rows)}))
    found = clickhouse.ask(f"SELECT id, ok, tags, place FROM {clickhouse.database}.result ORDER BY place")
    assert [(int(row["id"]), row["ok"], row["tags"]) for row in found] == [(1, True, 2), (3, None, None), (6, False, 0)]
    told = "not of the type in the schema: "
    assert [(row["_offset"], row["reason"]) for row in dead_letters(clickhouse)] == [
        (1, told + "id"),
        (3, told + "id, at"),
        (4, told + "ok"),
        (5, told + "id"),
    ]


@pytest.mark.long
def test_raw_values_are_text_and_what_is_no_text_is_a_dead_letter(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    view = {"topic": topic, "name": "lines", "format": "raw", "schema": "value STRING"}
    query = {"sources": [view], "sql": "SELECT value, _offset AS place FROM lines"}
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["place"]), query)
    world.produce(topic, [b"one", b"\xff", b'{"two": 2}'])
    slot = StreamSlot(world, jobs, pipeline, "ann")
    slot.run_until(slot.has_read(**{topic: 3}))
    rows = clickhouse.ask(f"SELECT value FROM {clickhouse.database}.result ORDER BY place")
    assert [row["value"] for row in rows] == ["one", '{"two": 2}']
    assert [(row["_offset"], row["reason"][:9]) for row in dead_letters(clickhouse)] == [(1, "not UTF-8")]


@pytest.mark.long  # the same of one source at two places is below; what each says was read, in test_protocol.py
def test_of_two_sources_of_one_topic_the_one_that_has_dead_letters_says_what_was_read(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    everything = {"topic": topic, "name": "everything", "schema": "id BIGINT", "badRecords": "null"}
    latest = {"topic": topic, "name": "latest", "schema": "id BIGINT", "start": "latest"}
    sql = "SELECT id, _offset AS place, 'all' AS of FROM everything UNION ALL SELECT id, _offset, 'new' FROM latest"
    query = {"sources": [everything, latest], "sql": sql, "rowsPerBatchMax": 20}
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["place"]), query)
    world.produce(topic, [*events(range(29)), b"{"])
    slot = StreamSlot(world, jobs, pipeline, "ann")
    slot.fail_at("stream.taken-over")  # where its sources begin is decided, and nothing is read
    world.produce(topic, [b"{not JSON", event(31)])

    def rows() -> list[tuple[str, int]]:
        found = clickhouse.ask(f"SELECT of, toUInt32(place) AS at FROM {clickhouse.database}.result ORDER BY of, at")
        return [(row["of"], row["at"]) for row in found]

    slot.run_until(lambda: slot.record.done is not None and len(rows()) >= 33)
    assert rows() == [*(("all", at) for at in range(32)), ("new", 31)]
    assert [row["_offset"] for row in dead_letters(clickhouse)] == [30]


@pytest.mark.parametrize(("ends", "counted_at"), [((12, 9), 1), pytest.param((9, 12), 1, marks=pytest.mark.long)])
def test_of_a_source_that_is_read_at_two_places_the_dead_letters_of_the_first_are_kept(
    ends: tuple[int, int], counted_at: int, world: DriverCluster, spark: "SparkSession"
) -> None:
    """A self-join: one place may have read further than the other, and Spark tells what it has counted at one of them."""
    topic = world.topic(1)
    world.produce(topic, [*events(range(5)), b"{", *events(range(4)), b"{not JSON", event(9)])  # at 5 and 10
    mine = StreamSource(topic=topic, name="orders", schema="id BIGINT")
    seen: list[Fingerprint] = []
    bad = BadRecords((mine,), world.cluster_address, {"orders": {"0": 0}}, lambda name: seen[0], reads_all=True)
    seen.append(bad._fingerprint(spark, mine, [TopicRange(topic, 0, 0, ends[counted_at])]))
    position = '{{"name": "orders", "topics": {{"{}": {{"id": "T", "offsets": {{"0": {}}}}}}}}}'
    offsets = "\n".join(["v1", "{}", *(position.format(topic, end) for end in ends)])
    found: list[int] = []
    bad.of_batch(spark, "", offsets, lambda frame: found.extend(row["offset"] for row in frame.collect()))
    assert found == [at for at in (5, 10) if at < ends[0]]
    seen[0] = (3, 7)  # another decision: nobody has left out these
    with pytest.raises(UnavailableError, match=r"3 records of .* were left out"):
        bad.of_batch(spark, "", offsets, lambda frame: found.extend(row["offset"] for row in frame.collect()))
