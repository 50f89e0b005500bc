"""Consumers of every partition of a topic, from its start and without a group, beside a gateway in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.clients.java import runner
from tests.support.kafka_wire import KafkaGateway

from holdfast.vocabulary.errors import UnavailableError


@asynccontextmanager
async def librdkafka_reader(
    gateway: KafkaGateway, topic: str, partitions: int, rack: str = ""
) -> AsyncIterator[list[str]]:
    """What a librdkafka consumer of all partitions has read so far."""
    read: list[str] = []
    enough = Event()

    def poll() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{gateway.port}",
                "group.id": "none",
                "enable.auto.commit": False,
                "client.rack": rack,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while not enough.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                read.append((message.value() or b"").decode())
        consumer.close()

    polling = asyncio.ensure_future(asyncio.to_thread(poll))
    try:
        yield read
    finally:
        enough.set()
        await polling


@asynccontextmanager
async def java_reader(gateway: KafkaGateway, topic: str, partitions: int, rack: str = "") -> AsyncIterator[list[str]]:
    """What a Java consumer of all partitions has read so far."""
    try:
        argv = runner.command("conformance.Reader", f"127.0.0.1:{gateway.port}", topic, str(partitions), rack)
    except UnavailableError as missing:
        pytest.skip(str(missing))
    java = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    read: list[str] = []

    async def collect() -> None:
        assert java.stdout is not None
        async for line in java.stdout:
            read.append(line.decode().strip())

    collecting = asyncio.ensure_future(collect())
    try:
        yield read
    finally:
        java.kill()
        await java.wait()
        await collecting


READERS = {"librdkafka": librdkafka_reader, "java": java_reader}
