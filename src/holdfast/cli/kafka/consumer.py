"""A consumer of the command line: its settings, its poll loop, and its messages as records."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)

from holdfast.cli.kafka.record_format import ConsumedRecord
from holdfast.cli.kafka.signals import StopFlag
from holdfast.client.kafka_errors import kafka_error
from holdfast.client.librdkafka import RETRY_PAUSE_S, KafkaClient
from holdfast.client.partition_offsets import PartitionRef, partition_label
from holdfast.vocabulary.errors import UnavailableError

BATCH_MAX: Final = 500


@contextmanager
def open_consumer(connection: KafkaClient, settings: Mapping[str, Any]) -> Iterator[Consumer]:
    """A consumer without auto-commit; it leaves its group when the body ends."""
    consumer = connection.consumer(
        {"enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 100, **settings}
    )
    try:
        yield consumer
    except KafkaException as failure:
        raise connection.error(kafka_error(failure), "cluster", str(connection.bootstrap)) from None
    finally:
        consumer.close()


def poll_batch(
    connection: KafkaClient, consumer: Consumer, stop_flag: StopFlag, *, idle_s_max: Callable[[], float]
) -> Iterator[list[Message]]:
    """Batches of messages, often empty; `UnavailableError` after `idle_s_max` without a message."""
    received_at = time.monotonic()
    while not stop_flag.asked:
        first = consumer.poll(RETRY_PAUSE_S)
        if first is not None:
            yield [first, *consumer.consume(BATCH_MAX - 1, 0)]
            received_at = time.monotonic()
        elif time.monotonic() - received_at > idle_s_max():
            raise UnavailableError(f"Kafka at {connection.bootstrap}", connection.timeout_reason())
        else:
            yield []


def partition_ref_of(message: Message) -> PartitionRef:
    """The message's partition; number -1 for an event without one."""
    topic, partition = message.topic(), message.partition()
    return ("" if topic is None else topic, -1 if partition is None else partition)


def is_partition_end(message: Message) -> bool:
    """Whether it is the event that a partition's end is reached."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def records_in(connection: KafkaClient, batch: Sequence[Message]) -> list[ConsumedRecord]:
    """The batch's records; raises if there is an error among them."""
    return [record_of(connection, message) for message in batch if not is_partition_end(message)]


def record_of(connection: KafkaClient, message: Message) -> ConsumedRecord:
    """The message as a record; raises if it is an error."""
    place = partition_ref_of(message)
    if (error := message.error()) is not None:
        raise connection.error(error, "partition", partition_label(place))
    kind, timestamp_ms = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    headers: Any = message.headers()
    return ConsumedRecord(
        topic=place[0],
        partition=place[1],
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms if known else None,
        timestamp_type=("create" if kind == TIMESTAMP_CREATE_TIME else "append") if known else None,
        key=message.key(),
        value=message.value(),
        headers=headers or [],
    )
