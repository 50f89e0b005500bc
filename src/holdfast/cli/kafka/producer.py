"""Sends lines as records to a topic; counts the acknowledged and reports the failed ones.

Idempotent unless acks is less than all; keys are partitioned as by Java's client (murmur2).
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.cli.kafka.record_parser import OutgoingRecord
from holdfast.cli.kafka.signals import StopFlag, StopRequested
from holdfast.client.admin.topics import topic_settings
from holdfast.client.kafka_errors import kafka_error
from holdfast.client.librdkafka import RETRY_PAUSE_S, KafkaClient
from holdfast.client.types import KafkaRefusedError
from holdfast.vocabulary.errors import HoldfastError

RECORD_BYTES_MAX: Final = 1_000_000_000  # librdkafka's
QUEUE_KBYTES_MAX: Final = 512 * 1_024
SERVE_EVERY: Final = 256  # records between two polls for failures
AUTO_CREATE_WAIT_S: Final = 2.0

_RECORD_ERRORS: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_PARTITION)  # the next record may succeed

LineParser = Callable[[bytes, int], OutgoingRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How to send. `acks` is 0, 1 or all; `rate` is records per second."""

    topic: str
    partition: int | None = None
    acks: str = "all"
    compression: str = "none"
    rate: float | None = None
    count: int | None = None
    delivery_timeout_s: float = 30.0

    def settings(self) -> dict[str, Any]:
        """For librdkafka."""
        return {
            "enable.idempotence": self.acks == "all",
            "acks": self.acks,
            "compression.type": self.compression,
            "partitioner": "murmur2_random",
            "delivery.timeout.ms": int(self.delivery_timeout_s * 1_000),
            "queue.buffering.max.kbytes": QUEUE_KBYTES_MAX,
            "delivery.report.only.error": True,
            "linger.ms": 5,
        }


@dataclass(slots=True)
class SendReport:
    """The outcome. Every record that was read is acknowledged, or failed for one of the reasons."""

    read: int = 0
    read_bytes: int = 0
    took_s: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    error: HoldfastError | None = None  # the first one

    @property
    def acknowledged(self) -> int:
        """Records that the broker acknowledged."""
        return self.read - sum(self.failures.values())

    def fail(self, error: HoldfastError) -> None:
        """Count one failed record."""
        self.failures[str(error)] = self.failures.get(str(error), 0) + 1
        self.error = self.error or error


def send(
    connection: KafkaClient,
    sending: SendOptions,
    lines: BinaryIO,
    parse: LineParser,
    stop_flag: StopFlag,
    *,
    progress: Callable[[SendReport], None],
) -> SendReport:
    """Send a record for each line and wait for every acknowledgement; `stop_flag` ends the reading, not the waiting.

    An invalid line ends it too: the lines before it are sent, and its error is in the report.
    """
    sent, began = SendReport(), time.monotonic()

    def on_delivery(failure: KafkaError | None, _: Message | None) -> None:
        if failure is not None:
            sent.fail(connection.error(failure, "topic", sending.topic))

    def flush() -> None:
        while producer.flush(RETRY_PAUSE_S):  # ends: what is not acknowledged within the delivery timeout fails
            progress(sent)

    _require_partition(connection, sending)
    limit = {"message.max.bytes": _record_bytes_max(connection, sending.topic)}
    producer = connection.producer(sending.settings() | limit | {"on_delivery": on_delivery})
    try:
        for record in _records(lines, parse, sending, sent, stop_flag, producer):
            refused = _produce(producer, sending, record, stop_flag)
            on_delivery(refused, None)
            sent.read += 1
            if sent.read % SERVE_EVERY == 0:
                producer.poll(0)
                progress(sent)
    except StopRequested:
        pass
    except KafkaException as failure:
        sent.error = sent.error or connection.error(kafka_error(failure), "topic", sending.topic)
    except HoldfastError as wrong:
        sent.error = sent.error or wrong
    except Exception:
        flush()
        raise
    flush()
    sent.took_s = time.monotonic() - began
    progress(sent)
    return sent


def _records(
    lines: BinaryIO, parse: LineParser, sending: SendOptions, sent: SendReport, stop_flag: StopFlag, producer: Producer
) -> Iterable[OutgoingRecord]:
    """The lines as records, at most at the given rate."""
    began, number = time.monotonic(), 0
    while sending.count is None or number < sending.count:
        if sending.rate is not None:
            _pace(producer, stop_flag, began + number / sending.rate)
        line = stop_flag.wait(lines.readline)
        if not line:
            return
        number += 1
        sent.read_bytes += len(line)
        yield parse(line.removesuffix(b"\n"), number)


def _pace(producer: Producer, stop_flag: StopFlag, due: float) -> None:
    while (left_s := due - time.monotonic()) > 0:
        if stop_flag.asked:
            raise StopRequested
        producer.poll(min(RETRY_PAUSE_S, left_s))


def _produce(
    producer: Producer, sending: SendOptions, record: OutgoingRecord, stop_flag: StopFlag
) -> KafkaError | None:
    """Enqueue it; returns the error if the record itself is invalid."""
    partition = sending.partition if sending.partition is not None else record.partition
    while True:
        try:
            producer.produce(
                sending.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=-1 if partition is None else partition,
                timestamp=record.timestamp_ms or 0,
            )
        except BufferError:  # the broker is slower than the input
            producer.poll(RETRY_PAUSE_S)
            if stop_flag.asked:
                raise StopRequested from None
        except KafkaException as failure:
            refused = kafka_error(failure)
            if refused.code() not in _RECORD_ERRORS:
                raise
            return refused
        else:
            return None


def _require_partition(connection: KafkaClient, sending: SendOptions) -> None:
    """Raises if the topic or partition does not exist. Asking as a producer creates the topic where the broker does so."""
    asking = connection.producer({})
    deadline = time.monotonic() + min(AUTO_CREATE_WAIT_S, connection.bootstrap.timeout_s)
    while True:
        try:
            found = asking.list_topics(sending.topic, timeout=connection.bootstrap.timeout_s).topics[sending.topic]
        except KafkaException as failure:
            raise connection.error(kafka_error(failure), "topic", sending.topic) from None
        if found.error is None:
            break
        if time.monotonic() > deadline:
            raise connection.error(found.error, "topic", sending.topic)
        time.sleep(RETRY_PAUSE_S)
    if sending.partition is not None and sending.partition not in found.partitions:
        name = f"{sending.topic}-{sending.partition}"
        raise KafkaRefusedError("partition", name, f"does not exist at {connection.bootstrap}")


def _record_bytes_max(connection: KafkaClient, topic: str) -> int:
    """The topic's own limit: the client then refuses one record, where the broker would refuse all that came with it."""
    with suppress(HoldfastError, ValueError):  # without permission to describe it, the broker refuses the record itself
        settings = {setting.name: setting.value for setting in topic_settings(connection, [topic])[topic]}
        return min(max(1_000, int(settings.get("max.message.bytes") or RECORD_BYTES_MAX)), RECORD_BYTES_MAX)
    return RECORD_BYTES_MAX
