"""Topics as scenarios fill and check them, by librdkafka."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from tests.support.server_process import admin, create_topic
from tests.support.waiting import until

WAIT_S = 90.0

__all__ = [
    "WAIT_S",
    "Record",
    "admin",
    "committed",
    "config_of",
    "create_topic",
    "names",
    "read_until",
    "send",
    "until",
]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def send(bootstrap: str, topic: str, values: Sequence[bytes], **settings: object) -> None:
    """Each value under itself as key, with a header; returns when all are acknowledged."""
    failed: list[object] = []

    def answered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, value, key=value, headers=[("number", value)], on_delivery=answered)
    left = producer.flush(WAIT_S)
    assert not left, f"{left} of {len(values)} records are not acknowledged"
    assert not failed, f"{len(failed)} records failed: {failed[0]}"


def read_until(bootstrap: str, topic: str, values: Sequence[bytes], *, within_s: float = WAIT_S) -> list[Record]:
    """Every record of the topic from its beginning, once all of `values` are there, in any order, as often as they are."""
    wanted, found = set(values), list[Record]()
    until(lambda: topic in names(bootstrap), what=f"there is a topic {topic}", within_s=within_s)
    with _reading(bootstrap, topic) as consumer:

        def complete() -> bool:
            found.extend(_consumed(consumer))
            wanted.difference_update(each.value or b"" for each in found)
            return not wanted

        until(complete, what=lambda: f"{topic} has {len(values)} values: {len(wanted)} are missing", within_s=within_s)
    return found


def read_all(bootstrap: str, topic: str) -> list[Record]:
    """Every record of the topic as it is now, partition after partition, in order of offsets."""
    found: list[Record] = []
    with _reading(bootstrap, topic) as consumer:
        at = consumer.assignment()
        ends = {each.partition: _end(consumer, each) for each in at}

        def complete() -> bool:
            found.extend(_consumed(consumer))
            places = {each.partition: each.offset for each in consumer.position(at)}
            return all(places[number] >= end for number, end in ends.items() if end > 0)

        until(complete, what=f"{topic} is read to its end", within_s=WAIT_S)
    return found


def _end(consumer: Consumer, at: TopicPartition) -> int:
    """The end of a partition. Right after a restart it has no leader, which librdkafka gives various names: waited for."""
    answers: list[int | KafkaException] = []

    def known() -> bool:
        try:
            answers.append(consumer.get_watermark_offsets(at, timeout=WAIT_S)[1])
        except KafkaException as failure:
            answers.append(failure)
        return isinstance(answers[-1], int)

    until(known, what=lambda: f"the end of {at.topic} is known: {answers[-1]}", within_s=WAIT_S)
    end = answers[-1]
    assert isinstance(end, int)
    return end


@contextmanager
def _reading(bootstrap: str, topic: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "conformance-reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        yield consumer
    finally:
        consumer.close()


def _consumed(consumer: Consumer) -> Iterator[Record]:
    for message in consumer.consume(500, 0.2):
        error = message.error()
        assert error is None or error.retriable() or error.code() < 0, error  # negative: librdkafka's own, it goes on
        if error is None:
            yield _record(message)


def _record(message: Message) -> Record:
    sent: Any = message.headers() or ()  # pairs; the stubs allow more
    headers = tuple((str(name), value) for name, value in sent)
    key, value = message.key(), message.value()
    return Record(message.partition() or 0, key, value, headers, message.timestamp()[1])


def names(bootstrap: str) -> set[str]:
    """All topics."""
    return set(admin(bootstrap).list_topics(timeout=WAIT_S).topics)


def config_of(bootstrap: str, topic: str) -> dict[str, str]:
    """A topic's settings."""
    client: AdminClient = admin(bootstrap)
    (asked,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in asked.result(WAIT_S).items()}


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """A group's committed offset; negative where it has none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=WAIT_S)
        return int(found.offset)
    finally:
        consumer.close()
