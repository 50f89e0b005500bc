"""The history of a heap is a topic: Kafka's clients read it, and cannot write to it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.heaps import HeapWorld, enqueue, pop
from tests.support.kafka_wire import gateway_of

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.heap.records import Ack, Enqueue, Grant, decode_operation


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


def read(bootstrap: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "history", "log_level": 2})
    try:
        consumer.assign([TopicPartition("jobs", 0, 0)])
        return consumer.consume(count, timeout=60)
    finally:
        consumer.close()


def write(bootstrap: str) -> KafkaError | None:
    failed: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    producer.produce("jobs", b"from outside", partition=0, on_delivery=lambda error, _: failed.append(error))
    producer.flush(60)
    return failed[0]


async def test_a_kafka_client_reads_the_history_and_cannot_add_to_it(world: HeapWorld) -> None:
    async with gateway_of(world.cluster, "ann", KafkaSettings()) as gateway:
        heaps = await world.heap(gateway.node)
        await enqueue(heaps, 5, 3)
        popped = await pop(heaps, 2)
        await heaps.ack("jobs", [popped[0].lease_token])
        bootstrap = f"127.0.0.1:{gateway.port}"
        refused = await asyncio.to_thread(write, bootstrap)
        assert refused is not None
        assert refused.code() == KafkaError.POLICY_VIOLATION
        found = await asyncio.to_thread(read, bootstrap, 4)
    operations = [decode_operation(each.key(), each.value()) for each in found]
    assert [type(each) for each in operations] == [Enqueue, Enqueue, Grant, Ack]
    assert found[0].value() == b"5"  # the payload as it was given
    assert isinstance(operations[2], Grant)
    assert operations[2].entries == ((1, 3), (0, 5))
    assert operations[3] == Ack((1,))
