"""Shorthand of the kafka-python tests, with settings that keep waits short."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.support.broker import Broker
from tests.support.kafka_python_import import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from tests.support.record_shapes import Shape
from tests.support.waiting import until

from holdfast.vocabulary.clock import RealClock

CLOCK = RealClock()
TIMEOUT_S = 30


@contextmanager
def producing(broker: Broker, **settings: Any) -> Iterator[KafkaProducer]:
    settings = {"request_timeout_ms": 20_000, "max_block_ms": 20_000, **settings}
    with KafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        yield producer


@contextmanager
def consuming(broker: Broker, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300, **settings}
    with KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **settings) as consumer:
        yield consumer


@contextmanager
def administering(broker: Broker, **settings: Any) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap, **settings)
    try:
        yield admin
    finally:
        admin.close()


def send(producer: KafkaProducer, topic: str, values: Iterable[bytes], partition: int = 0) -> list[Any]:
    """Send `values` to one partition and wait for every acknowledgement."""
    futures = [producer.send(topic, value, partition=partition) for value in values]
    return [future.get(TIMEOUT_S) for future in futures]


def send_shape(producer: KafkaProducer, topic: str, shape: Shape) -> Any:
    headers = list(shape.headers)
    return producer.send(topic, shape.value, shape.key, headers, 0, shape.timestamp_ms)


def sendable(shape: Shape) -> bool:
    """Whether this client can send it: it refuses null headers, and records that are null in key and value."""
    return all(value is not None for _, value in shape.headers) and (shape.key, shape.value) != (None, None)


def read(broker: Broker, topic: str, count: int, *, partitions: int = 1, **settings: Any) -> list[Any]:
    """The first `count` records of a topic, without a group, each partition in order."""
    with consuming(broker, **settings) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        return take(consumer, count)


def take(consumer: KafkaConsumer, count: int) -> list[Any]:
    """The next `count` records that the consumer gets."""
    records: list[Any] = []
    deadline_ms = CLOCK.boot_ms() + TIMEOUT_S * 1_000
    while len(records) < count:
        polled = consumer.poll(timeout_ms=200, max_records=count - len(records))
        records += [record for partition in polled.values() for record in partition]
        assert CLOCK.boot_ms() < deadline_ms, f"{len(records)} of {count} records within {TIMEOUT_S} s"
    return records


def joined(consumer: KafkaConsumer) -> None:
    """Poll until the consumer has its part of the group's partitions, without taking records."""
    deadline_ms = CLOCK.boot_ms() + TIMEOUT_S * 1_000
    for topic in consumer.subscription():  # a leader that has not heard of it would assign nothing, and leave it so
        until(partial(consumer.partitions_for_topic, topic), what=f"{topic} is known")
    while not consumer.assignment():
        consumer.poll(timeout_ms=50)
        assert CLOCK.boot_ms() < deadline_ms, f"no partitions within {TIMEOUT_S} s"
