"""Reads one topic of any Kafka cluster on librdkafka: partitions, offsets, some records. Synchronous, for threads.

The one rule: nothing is committed and no group is joined: reading leaves no trace in the cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.client.kafka_topic_ids import KafkaTopicIds
from holdfast.client.types import InvalidClientConfigError
from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.types import OffsetRange

_POLL_S: Final = 0.2
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as it was produced."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class TopicReader:
    """One topic. Created by `open_topic_reader`."""

    def __init__(
        self, consumer: Any, topic: str, servers: str, settings: Mapping[str, Any], *, clock: Clock, deadline_ms: int
    ) -> None:
        self._consumer, self._topic, self._servers, self._settings = consumer, topic, servers, settings
        self._clock, self._deadline_ms = clock, deadline_ms

    def partitions(self) -> tuple[int, ...]:
        """The numbers of its partitions. `UnknownTopicError`."""
        from confluent_kafka import KafkaException

        try:
            found = self._consumer.list_topics(self._topic, timeout=self._left_s()).topics[self._topic]
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._servers}", _error_text(error)) from None
        if found.error is not None:
            if found.error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION"):
                raise UnknownTopicError(self._topic)
            raise UnavailableError(f"topic {self._topic} at {self._servers}", found.error.str())
        return tuple(sorted(found.partitions))

    def topic_id(self) -> str:
        """Its id; empty: the brokers have no ids."""
        from confluent_kafka import KafkaException

        try:
            return KafkaTopicIds(self._settings, timeout_s=self._left_s()).of(self._topic)
        except KafkaException as error:
            raise UnavailableError(f"topic {self._topic} at {self._servers}", _error_text(error)) from None

    def bounds(self) -> dict[int, OffsetRange]:
        """The offsets that each partition holds."""
        numbers = self.partitions()
        starts, ends = self._offsets(numbers, EARLIEST), self._offsets(numbers, LATEST)
        return {number: OffsetRange(starts[number], ends[number]) for number in numbers}

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        """Partition → the first offset at or after a time; the end if there is none."""
        bounds = self.bounds()
        found = self._offsets(tuple(bounds), timestamp_ms)
        return {number: offset if offset >= 0 else bounds[number].end for number, offset in found.items()}

    def _offsets(self, numbers: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        """One request for all partitions."""
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [TopicPartition(self._topic, number, timestamp_ms) for number in numbers]
        try:
            found = self._consumer.offsets_for_times(wanted, timeout=self._left_s())
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._servers}", _error_text(error)) from None
        for each in found:
            if each.error is not None:
                raise UnavailableError(f"partition {self._topic}:{each.partition}", each.error.str())
        return {each.partition: each.offset for each in found}

    def records(self, ranges: Mapping[int, OffsetRange]) -> list[KafkaRecord]:
        """The records of these ranges, or as many of them as arrive before the deadline."""
        from confluent_kafka import KafkaError, TopicPartition

        left = {number: each.end for number, each in ranges.items() if each.start < each.end}
        self._consumer.assign([TopicPartition(self._topic, number, ranges[number].start) for number in left])
        found: list[KafkaRecord] = []
        while left and self._clock.boot_ms() < self._deadline_ms:
            for message in self._consumer.consume(_BATCH, timeout=_POLL_S):
                number, error = message.partition(), message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        left.pop(number, None)
                    continue
                if number in left and message.offset() < left[number]:
                    found.append(_record(message))
                if number in left and message.offset() + 1 >= left[number]:
                    del left[number]
        self._consumer.unassign()
        return found

    def _left_s(self) -> float:
        return max(0.1, (self._deadline_ms - self._clock.boot_ms()) / 1_000)


def _record(message: Any) -> KafkaRecord:
    _, timestamp_ms = message.timestamp()
    headers = tuple((str(name), value) for name, value in message.headers() or ())
    return KafkaRecord(message.partition(), message.offset(), timestamp_ms, message.key(), message.value(), headers)


def _error_text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    text = first.str() if hasattr(first, "str") else str(first)
    return " ".join(text.split())[:300]


@contextmanager
def open_topic_reader(
    topic: str, servers: str, properties: Mapping[str, Any], *, clock: Clock, timeout_ms: int
) -> Iterator[TopicReader]:
    """A reader of one topic for the body. `properties` are librdkafka's, such as `security.protocol`."""
    from confluent_kafka import Consumer, KafkaException

    errors: list[str] = []
    connection = {
        "bootstrap.servers": servers,
        "socket.timeout.ms": 10_000,
        "log_level": 0,
        **properties,
        "error_cb": lambda error: errors.append(error.str()),
    }
    config = {
        "group.id": "holdfast-look",  # librdkafka requires one; it is never joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        **connection,
    }
    try:
        consumer = Consumer(config)
    except KafkaException as error:
        raise InvalidClientConfigError(_error_text(error)) from None
    try:
        deadline_ms = clock.boot_ms() + timeout_ms
        yield TopicReader(consumer, topic, servers, connection, clock=clock, deadline_ms=deadline_ms)
    except UnavailableError as error:
        raise UnavailableError(error.service, _with_network_error(error.reason, errors)) from None
    finally:
        consumer.close()


def _with_network_error(reason: str, errors: Sequence[str]) -> str:
    """The last network error explains more than a timeout does."""
    return f"{reason} ({errors[-1][:300]})" if errors and errors[-1] not in reason else reason
