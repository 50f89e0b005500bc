"""One librdkafka producer: records in, delivery reports out.

The one rule: delivery reports are served where records are produced, between two of them, and not on a thread beside it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from holdfast.client.kafka_errors import KafkaOutcomeUnknownError, kafka_error
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.records.model import Header, ProducerRecord, RecordMetadata
from holdfast.client.records.serializers import Serializer, serializer
from holdfast.client.records.settings import ProducerSettings
from holdfast.vocabulary.errors import ClosedError, ExpiredError, HoldfastError, InvalidError
from holdfast.vocabulary.settings import KIB

Interceptor = Callable[[str, ProducerRecord], ProducerRecord]
"""Sees each record before it is serialized, and returns the one to send: for headers that every record is to carry."""

_RECORD_OVERHEAD_BYTES: Final = 64
_CHUNK_RECORDS: Final = 256
_CHUNK_BYTES: Final = 256 * KIB
POLL_S_MIN: Final = 0.001
POLL_S_MAX: Final = 0.016
"""How often to poll while something is unacknowledged: the longer nothing is reported, the less often."""


EncodedRecord = tuple[str, bytes | None, bytes | None, int, int, list[Header] | None]
"""Topic, value, key, partition (-1: by key), timestamp (0: now) and headers, as librdkafka takes them."""


class Report(msgspec.Struct, gc=False):
    """What became of one record; `parcel` and `index` are what it was produced with.

    It is the callback of its own delivery, and unknown to the garbage collector, which would spend more time on a hundred thousand
    of them than everything else takes.
    """

    parcel: Any
    index: int
    reports: "deque[Report]"
    error: KafkaError | None = None
    message: Any = None
    topic: str = ""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """librdkafka reports the record."""
        if error is None:
            self.message = message
        else:
            self.error, self.topic = error, message.topic() or ""
        self.reports.append(self)


class Encoder:
    """Records to what librdkafka takes."""

    def __init__(
        self,
        *,
        value_serializer: str | Serializer,
        key_serializer: str | Serializer,
        interceptors: Sequence[Interceptor],
        settings: ProducerSettings,
    ) -> None:
        self._value, self._key = serializer(value_serializer, "value"), serializer(key_serializer, "key")
        self._interceptors, self._record_bytes_max = tuple(interceptors), settings.record_bytes_max
        # A part of the buffer at a time: whatever does not fit into it would wait until it is empty.
        self._chunk_records = max(1, min(_CHUNK_RECORDS, settings.buffer_records_max // 4))
        self._chunk_bytes = min(_CHUNK_BYTES, settings.buffer_bytes_max // 4)

    def encode(self, topic: str, record: ProducerRecord) -> tuple[EncodedRecord, int]:
        """The record as bytes, and how many it counts for. `SerializationError`, `InvalidError`."""
        if not topic or topic.__class__ is not str:
            raise InvalidError("topic", topic, "a name")
        for intercept in self._interceptors:
            record = intercept(topic, record)
        value, key = record.value, record.key
        if value is not None:
            value = self._value(value)
        if key is not None:
            key = self._key(key)
        size = _RECORD_OVERHEAD_BYTES + (0 if value is None else len(value)) + (0 if key is None else len(key))
        partition, timestamp_ms, headers = record.partition, record.timestamp_ms, None
        if record.headers:
            headers = _headers(record.headers)
            size += sum(len(name) + len(each or b"") for name, each in headers)
        if partition is not None and partition < 0:
            raise InvalidError("partition", partition, "at least 0")
        if timestamp_ms is not None and timestamp_ms < 1:
            raise InvalidError("timestamp_ms", timestamp_ms, "milliseconds since 1970")
        if size > self._record_bytes_max + _RECORD_OVERHEAD_BYTES:
            allowed = f"at most {self._record_bytes_max}, the producer's record_bytes_max"
            raise InvalidError(f"size of a record for {topic}", size - _RECORD_OVERHEAD_BYTES, allowed)
        return (topic, value, key, -1 if partition is None else partition, timestamp_ms or 0, headers), size

    def encode_many(self, topic: str, records: Iterable[Any]) -> Iterator[tuple[list[EncodedRecord], list[int]]]:
        """Some records and their sizes at a time. Those before one that is refused come first, then its error."""
        chunk: list[EncodedRecord] = []
        sizes: list[int] = []
        size_bytes = 0
        try:
            for each in records:
                given = each if each.__class__ is ProducerRecord else ProducerRecord(each)
                record, size = self.encode(topic, given)
                if len(chunk) >= self._chunk_records or (chunk and size_bytes + size > self._chunk_bytes):
                    yield chunk, sizes
                    chunk, sizes, size_bytes = [], [], 0
                size_bytes += size
                chunk.append(record)
                sizes.append(size)
        except Exception:
            if chunk:
                yield chunk, sizes
            raise
        if chunk:
            yield chunk, sizes


class Sender:
    """An open producer. Whoever owns it polls it while there is something that is not reported."""

    def __init__(self, client: KafkaClient, settings: ProducerSettings) -> None:
        self._client = client
        self._producer: Any = client.producer(settings.properties())
        self._reports: deque[Report] = deque()

    def __len__(self) -> int:
        """Records that were queued, and have not been reported."""
        return len(self._producer) + len(self._reports)

    def produce(self, record: EncodedRecord, parcel: object, index: int) -> bool:
        """Queue it; False: librdkafka's queue is full, try again after some reports. A refusal is reported."""
        topic, value, key, partition, timestamp_ms, headers = record
        report = Report(parcel, index, self._reports)
        try:
            self._producer.produce(topic, value, key, partition, report, None, timestamp_ms, headers)
        except BufferError:
            return False
        except KafkaException as refused:  # for ever: an outcome like any other
            report.error, report.topic = kafka_error(refused), topic
            self._reports.append(report)
        return True

    def poll(self) -> list[Report]:
        """What was reported since; does not wait."""
        self._producer.poll(0)
        reports = self._reports
        return [reports.popleft() for _ in range(len(reports))]

    def send_now(self, within_s: float) -> None:
        """Wait for reports; batches do not wait for more records meanwhile. For a thread of its own: `poll` has the reports."""
        self._producer.flush(within_s)

    def abandon(self) -> None:
        """What is not acknowledged yet fails, at once."""
        self._producer.purge(blocking=False)

    def close(self) -> None:
        """Close the connections. Takes a moment: for a thread."""
        self._producer = None

    def outcome(self, report: Report) -> RecordMetadata | HoldfastError:
        """What a report means."""
        if report.error is not None:
            return self._error(report.error, report.topic)
        message = report.message
        topic = message.topic() or ""
        return RecordMetadata(topic, message.partition() or 0, message.offset() or 0, message.timestamp()[1])

    def _error(self, error: KafkaError, topic: str) -> HoldfastError:
        code = error.code()
        if code == KafkaError._PURGE_QUEUE:
            return ClosedError("producer")
        if code == KafkaError._PURGE_INFLIGHT:
            return KafkaOutcomeUnknownError(f"sending to topic {topic}", "the producer was closed before the answer")
        if error.fatal():
            return ExpiredError("producer", f"{error.str()}; open another one")
        return self._client.error(error, "topic", topic)


def _headers(given: Sequence[Header] | Mapping[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InvalidError("header", pair, "a name and bytes")
        if not isinstance(pair[1], bytes | str | None):
            raise InvalidError(f"header {pair[0]}", pair[1], "bytes, text or None")
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
