"""A source's topic through Kafka's protocol: how many partitions, which offsets, some records. Synchronous, for threads.

The one rule: nothing is committed and no group is joined: a look leaves no trace. A topic of this cluster and one of any other
Kafka are read the same way.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError

_EARLIEST: Final = -2  # Kafka's times for the first offset, and for the one behind the last
_LATEST: Final = -1
_POLL_S: Final = 0.2
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """The offsets a partition holds: from `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as it was sent."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class TopicReader:
    """One topic. Made by `open_topic_reader`."""

    def __init__(self, consumer: Any, config: KafkaConfig, place: str, *, clock: Clock, until_ms: int) -> None:
        self._consumer, self._config, self._place = consumer, config, place
        self._clock, self._until_ms = clock, until_ms

    def partitions(self) -> tuple[int, ...]:
        """The numbers of its partitions. `InvalidError`: there is no such topic."""
        from confluent_kafka import KafkaException

        try:
            found = self._consumer.list_topics(self._config.topic, timeout=self._left_s()).topics[self._config.topic]
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._place}", _error_text(error)) from None
        if found.error is not None:
            if found.error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION"):
                raise InvalidError("source.topic", self._config.topic, f"a topic that exists at {self._place}")
            raise UnavailableError(f"topic {self._config.topic} at {self._place}", found.error.str())
        return tuple(sorted(found.partitions))

    def bounds(self) -> dict[int, OffsetBounds]:
        """What each partition holds."""
        numbers = self.partitions()
        starts, ends = self._offsets(numbers, _EARLIEST), self._offsets(numbers, _LATEST)
        return {number: OffsetBounds(starts[number], ends[number]) for number in numbers}

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        """The first offset at or after a time, by partition; the end where there is none."""
        bounds = self.bounds()
        found = self._offsets(tuple(bounds), timestamp_ms)
        return {number: offset if offset >= 0 else bounds[number].end for number, offset in found.items()}

    def _offsets(self, numbers: Sequence[int], timestamp_ms: int) -> dict[int, int]:
        """One question for all partitions, however many there are."""
        from confluent_kafka import KafkaException, TopicPartition

        asked = [TopicPartition(self._config.topic, number, timestamp_ms) for number in numbers]
        try:
            answers = self._consumer.offsets_for_times(asked, timeout=self._left_s())
        except KafkaException as error:
            raise UnavailableError(f"Kafka at {self._place}", _error_text(error)) from None
        for each in answers:
            if each.error is not None:
                raise UnavailableError(f"partition {self._config.topic}:{each.partition}", each.error.str())
        return {each.partition: each.offset for each in answers}

    def records(self, ranges: Mapping[int, OffsetBounds]) -> list[KafkaRecord]:
        """The records of these ranges, or as many of them as come in time."""
        from confluent_kafka import KafkaError, TopicPartition

        left = {number: bound.end for number, bound in ranges.items() if bound.start < bound.end}
        self._consumer.assign([TopicPartition(self._config.topic, number, ranges[number].start) for number in left])
        found: list[KafkaRecord] = []
        while left and self._clock.boot_ms() < self._until_ms:
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
        return max(0.1, (self._until_ms - self._clock.boot_ms()) / 1_000)


def _record(message: Any) -> KafkaRecord:
    _, timestamp_ms = message.timestamp()
    headers = tuple((str(name), value) for name, value in message.headers() or ())
    return KafkaRecord(message.partition(), message.offset(), timestamp_ms, message.key(), message.value(), headers)


def _error_text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    text = first.str() if hasattr(first, "str") else str(first)
    return " ".join(text.split())[:300]


@contextmanager
def open_topic_reader(config: KafkaConfig, bootstrap: str, *, clock: Clock, timeout_ms: int) -> Iterator[TopicReader]:
    """A source's topic for the body. `bootstrap` is this cluster's own address, for sources without brokers."""
    from confluent_kafka import Consumer, KafkaException

    place = ",".join(config.brokers) or bootstrap
    if not place:
        raise UnavailableError("this cluster's topics", "this process knows no Kafka address of the cluster")
    heard: list[str] = []
    try:
        consumer = Consumer({**consumer_config(config, place), "error_cb": lambda error: heard.append(error.str())})
    except KafkaException as error:
        raise InvalidError("source", place, _error_text(error)) from None
    try:
        yield TopicReader(consumer, config, place, clock=clock, until_ms=clock.boot_ms() + timeout_ms)
    except UnavailableError as error:
        raise UnavailableError(error.service, _reason(error.reason, heard)) from None
    finally:
        consumer.close()


def _reason(reason: str, heard: list[str]) -> str:
    """What the network said says more than that nothing came."""
    return f"{reason} ({heard[-1][:300]})" if heard and heard[-1] not in reason else reason


def consumer_config(config: KafkaConfig, place: str) -> dict[str, Any]:
    """A client's settings for a source, its secrets included."""
    security = config.security
    settings: dict[str, Any] = {
        "bootstrap.servers": place,
        "group.id": "holdfast-look",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "security.protocol": security.protocol,
        "socket.timeout.ms": 10_000,
        "log_level": 0,
    }
    if security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    if security.ca_file:
        settings["ssl.ca.location"] = security.ca_file
    return settings
