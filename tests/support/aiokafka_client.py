"""Shorthand of the aiokafka tests, with settings that keep waits short."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import ConsumerRecord, RecordMetadata
from tests.support.broker import Broker
from tests.support.record_shapes import Shape

from holdfast.vocabulary.clock import RealClock

READ_TIMEOUT_S = 30
CLOCK = RealClock()


@asynccontextmanager
async def producing(broker: Broker, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    settings = {"request_timeout_ms": 20_000, **settings}
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        yield producer


@asynccontextmanager
async def consuming(broker: Broker, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **settings}
    async with AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **settings) as consumer:
        yield consumer


@asynccontextmanager
async def administering(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def send(
    producer: AIOKafkaProducer, topic: str, values: Iterable[bytes], partition: int = 0
) -> list[RecordMetadata]:
    """Send `values` to one partition and wait for every acknowledgement."""
    futures = [await producer.send(topic, value, partition=partition) for value in values]
    return list(await asyncio.gather(*futures))


async def send_shapes(producer: AIOKafkaProducer, topic: str, shapes: Iterable[Shape], *, together: bool) -> None:
    """Send shapes to partition 0 as batches: one batch each, or as many together as go into one.

    Batches of one's own making take what `send` refuses: a record that is null in key and value.
    """
    batch = producer.create_batch()
    for shape in shapes:
        if batch.record_count() and not (together and _added(batch, shape)):
            await (await producer.send_batch(batch, topic, partition=0))
            batch = producer.create_batch()
        if not batch.record_count():
            assert _added(batch, shape), shape
    await (await producer.send_batch(batch, topic, partition=0))


def _added(batch: Any, shape: Shape) -> bool:
    told = {"timestamp": shape.timestamp_ms, "key": shape.key, "value": shape.value, "headers": list(shape.headers)}
    return batch.append(**told) is not None


async def read(
    broker: Broker, topic: str, count: int, *, partitions: int = 1, **settings: Any
) -> list[ConsumerRecord[Any, Any]]:
    """The first `count` records of a topic, without a group, each partition in order."""
    async with consuming(broker, **settings) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return await take(consumer, count)


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    """The next `count` records that the consumer gets."""
    records: list[ConsumerRecord[Any, Any]] = []
    async with asyncio.timeout(READ_TIMEOUT_S):
        while len(records) < count:
            polled = await consumer.getmany(timeout_ms=500, max_records=count - len(records))
            records += [record for partition in polled.values() for record in partition]
    return records


async def rest(consumer: AIOKafkaConsumer) -> list[ConsumerRecord[Any, Any]]:
    """Everything up to the present end of the assigned partitions."""
    ends = await consumer.end_offsets(consumer.assignment())
    positions = {partition: await consumer.position(partition) for partition in ends}
    return await take(consumer, sum(ends[partition] - positions[partition] for partition in ends))
