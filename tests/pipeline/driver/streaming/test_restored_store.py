"""A store that was restored from a backup, under a query that went on after it."""

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.sink_values import target_of
from tests.support.stream_pipelines import StreamSlot, event, events, source, stream_pipeline, stream_sink

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.streaming.stream_fence import raise_fence
from holdfast.pipeline.driver.streaming.stream_record import StreamRecord, encode_record
from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.pipeline.model.definition import Pipeline, registry_namespace
from holdfast.pipeline.sinks.clickhouse.stream_sink import ClickHouseStreamSink, stream_target
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.registry.streams import read_stream, replace_stream
from holdfast.vocabulary.errors import FencedError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def restore(world: DriverCluster, pipeline: Pipeline, record: StreamRecord) -> None:
    namespace = registry_namespace(pipeline.id, 1)

    async def put() -> None:
        found = await read_stream(world.store, namespace)
        assert await replace_stream(
            world.store, namespace, found, encode_record(record), clock=world.clock, random=world.random
        )

    run(put())


def test_batches_that_a_restored_store_does_not_know_are_not_numbered_again(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    query = {"sources": [source(topic, "orders")], "sql": "SELECT id, amount FROM orders"}
    pipeline = stream_pipeline(world, stream_sink(clickhouse, orderBy=["id"]), query)
    world.produce(topic, events(range(10)))
    owner = StreamSlot(world, jobs, pipeline, "owner")
    owner.run_until(owner.has_read(**{topic: 10}))
    backup = owner.record
    world.produce(topic, events(range(10, 20)))
    owner.run_until(owner.has_read(**{topic: 20}))
    owner.processor.close()
    restore(world, pipeline, backup)
    world.produce(topic, [event(20)])
    successor = StreamSlot(world, jobs, pipeline, "successor")
    successor.run_until(lambda: "restored from a backup" in successor.processor.progress().blocked)
    rows = clickhouse.ask(f"SELECT count() AS n, uniqExact(id) AS ids FROM {clickhouse.database}.result")
    assert (int(rows[0]["n"]), int(rows[0]["ids"])) == (20, 20)
    assert not successor.is_active


def test_an_epoch_that_only_clickhouse_knows_blocks_with_what_to_do(
    world: DriverCluster, clickhouse: ClickHouseDatabase
) -> None:
    target = stream_target(target_of(clickhouse.config(), pipeline_id=world.broker.unique("p")))
    sink = ClickHouseStreamSink(target, "append")
    sink.prepare()
    sink.fence(0, 9)
    store = stream_store(world, target.pipeline_id, epoch=6)
    store.claim()
    with pytest.raises(
        BlockedError, match=r"seen epoch 9 of this generation, the store knows epochs up to 6: .*rewind"
    ):
        raise_fence(sink, store)
    stream_store(world, target.pipeline_id, epoch=9).claim()
    with pytest.raises(FencedError):  # its owner is there: a zombie stops
        raise_fence(sink, store)
    sink.close()


def stream_store(world: DriverCluster, pipeline: str, *, epoch: int) -> StreamStore:
    namespace = registry_namespace(pipeline, 1)
    return StreamStore(world.store, namespace, epoch, clock=world.clock, random=world.random, timeout_ms=30_000)
