"""A consumer of our own kind: what it is given, how it is polled, and its messages as records."""

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

from holdfast.cli.kafka.client import PAUSE_S, Connection
from holdfast.cli.kafka.errors import kafka_error
from holdfast.cli.kafka.offsets import Place, shown
from holdfast.cli.kafka.shown import Shown
from holdfast.cli.kafka.stopping import Stopping
from holdfast.vocabulary.errors import UnavailableError

BATCH_MAX: Final = 500


@contextmanager
def open_consumer(connection: Connection, settings: Mapping[str, Any]) -> Iterator[Consumer]:
    """A consumer that commits nothing by itself, and leaves its group when the body ends."""
    consumer = connection.consumer(
        {"enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 100, **settings}
    )
    try:
        yield consumer
    except KafkaException as failure:
        raise connection.error(kafka_error(failure), "cluster", str(connection.bootstrap)) from None
    finally:
        consumer.close()


def polled(
    connection: Connection, consumer: Consumer, wish: Stopping, *, patience_s: Callable[[], float]
) -> Iterator[list[Message]]:
    """What the consumer has, often nothing; raises when nothing came for `patience_s`."""
    heard_at = time.monotonic()
    while not wish.asked:
        first = consumer.poll(PAUSE_S)
        if first is not None:
            yield [first, *consumer.consume(BATCH_MAX - 1, 0)]
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > patience_s():
            raise UnavailableError(f"Kafka at {connection.bootstrap}", connection.silence())
        else:
            yield []


def place_of(message: Message) -> Place:
    """Where the message came from; partition -1 if it is about none."""
    topic, partition = message.topic(), message.partition()
    return ("" if topic is None else topic, -1 if partition is None else partition)


def is_end(message: Message) -> bool:
    """Whether it only says that a partition has no more for now."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def records_in(connection: Connection, batch: Sequence[Message]) -> list[Shown]:
    """The batch's records; raises if there is an error among them."""
    return [record_of(connection, message) for message in batch if not is_end(message)]


def record_of(connection: Connection, message: Message) -> Shown:
    """The message as a record; raises if it is an error."""
    place = place_of(message)
    if (error := message.error()) is not None:
        raise connection.error(error, "partition", shown(place))
    kind, timestamp_ms = message.timestamp()
    known = kind != TIMESTAMP_NOT_AVAILABLE
    headers: Any = message.headers()
    return Shown(
        topic=place[0],
        partition=place[1],
        offset=message.offset() or 0,
        timestamp_ms=timestamp_ms if known else None,
        timestamp_type=("create" if kind == TIMESTAMP_CREATE_TIME else "append") if known else None,
        key=message.key(),
        value=message.value(),
        headers=headers or [],
    )
