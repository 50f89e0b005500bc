"""A query over thousands of partitions. That the record of 10,000 fits into a commit is in test_stream_store."""

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.stream_pipelines import StreamSlot, event, source, stream_pipeline, stream_sink

from holdfast.client.loop_thread import run
from holdfast.contracts.validation import StoreLimits
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.stream_record import positions
from holdfast.pipeline.model.definition import registry_namespace
from holdfast.registry.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 2_000
WITHIN_S = 400  # thousands of leaders, and a first batch over all of them, on a busy machine


def test_a_query_over_thousands_of_partitions_reads_all_of_them_and_its_successor_goes_on(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(PARTITIONS)
    query = {"sources": [source(topic, "orders")], "sql": "SELECT id, kind FROM orders"}
    pipeline = stream_pipeline(world, stream_sink(clickhouse), query)

    def produce(first: int, end: int) -> None:
        records = ((str(number).encode(), event(number)) for number in range(first, end))
        world.produce_keyed(topic, records, partition=-1)

    def stored() -> tuple[int, int]:
        rows = clickhouse.ask(f"SELECT count() AS n, uniqExact(id) AS ids FROM {clickhouse.database}.result")
        return int(rows[0]["n"]), int(rows[0]["ids"])

    produce(0, 2 * PARTITIONS)
    first = StreamSlot(world, jobs, pipeline, "first")
    first.run_until(first.has_read(**{topic: 2 * PARTITIONS}), within_s=WITHIN_S)
    assert stored() == (2 * PARTITIONS, 2 * PARTITIONS)
    first.processor.stop()
    produce(2 * PARTITIONS, 2 * PARTITIONS + 500)
    second = StreamSlot(world, jobs, pipeline, "second")
    second.run_until(second.has_read(**{topic: 2 * PARTITIONS + 500}), within_s=WITHIN_S)
    assert stored() == (2 * PARTITIONS + 500, 2 * PARTITIONS + 500)

    record = second.record
    assert record.done is not None
    [position] = positions(record.done.offsets)
    assert len(position.topics[topic].offsets) == len(record.retain) == PARTITIONS
    entry = run(read_stream(world.store, registry_namespace(pipeline.id, 1)))
    assert entry is not None
    assert len(entry.value) < StoreLimits().bytes_max * 0.9
