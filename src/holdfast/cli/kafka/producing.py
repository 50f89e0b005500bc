"""Lines to records to a topic: what was acknowledged is counted, what was not is said.

Idempotent unless the acks are fewer than all; keys choose partitions as Java's client does (murmur2).
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.cli.kafka.client import PAUSE_S, Connection
from holdfast.cli.kafka.errors import RefusedError, kafka_error
from holdfast.cli.kafka.records import Outgoing
from holdfast.cli.kafka.stopping import Stopped, Stopping
from holdfast.vocabulary.errors import HoldfastError

RECORD_BYTES_MAX: Final = 256 * 2**20  # the broker's limit shall speak, not the client's
SERVE_EVERY: Final = 256  # records between two looks at what failed
AUTO_CREATE_WAIT_S: Final = 2.0

Parse = Callable[[bytes, int], Outgoing]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
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
            "message.max.bytes": RECORD_BYTES_MAX,
            "queue.buffering.max.kbytes": 2 * RECORD_BYTES_MAX // 1_024,
            "delivery.report.only.error": True,
            "linger.ms": 5,
        }


@dataclass(slots=True)
class Sent:
    """How it went. What was read is acknowledged, or failed for one of the reasons."""

    read: int = 0
    read_bytes: int = 0
    took_s: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)
    error: HoldfastError | None = None  # the first one

    @property
    def acknowledged(self) -> int:
        """Records that the broker has."""
        return self.read - sum(self.failures.values())

    def fail(self, error: HoldfastError) -> None:
        """One record did not arrive."""
        self.failures[str(error)] = self.failures.get(str(error), 0) + 1
        self.error = self.error or error


def send(
    connection: Connection,
    sending: Sending,
    lines: BinaryIO,
    parse: Parse,
    wish: Stopping,
    *,
    progress: Callable[[Sent], None],
) -> Sent:
    """Send a record for each line and wait for every acknowledgement; `wish` ends the reading, not the waiting.

    A line that is no record ends it too: what came before it is sent, and the error is in the answer.
    """
    sent, began = Sent(), time.monotonic()

    def on_delivery(failure: KafkaError | None, _: Message) -> None:
        if failure is not None:
            sent.fail(connection.error(failure, "topic", sending.topic))

    producer = connection.producer(sending.settings() | {"on_delivery": on_delivery})
    _require_partition(connection, producer, sending)
    try:
        for record in _records(lines, parse, sending, sent, wish, producer):
            _produce(producer, sending, record, wish)
            sent.read += 1
            if sent.read % SERVE_EVERY == 0:
                producer.poll(0)
                progress(sent)
    except Stopped:
        pass
    except KafkaException as failure:
        sent.error = sent.error or connection.error(kafka_error(failure), "topic", sending.topic)
    except HoldfastError as wrong:
        sent.error = sent.error or wrong
    while producer.flush(PAUSE_S):  # ends: what is not acknowledged within the delivery timeout fails
        progress(sent)
    sent.took_s = time.monotonic() - began
    progress(sent)
    return sent


def _records(
    lines: BinaryIO, parse: Parse, sending: Sending, sent: Sent, wish: Stopping, producer: Producer
) -> Iterable[Outgoing]:
    """The lines as records, no faster than they may go."""
    began, number = time.monotonic(), 0
    while sending.count is None or number < sending.count:
        if sending.rate is not None:
            _pace(producer, wish, began + number / sending.rate)
        line = wish.wait(lines.readline)
        if not line:
            return
        number += 1
        sent.read_bytes += len(line)
        yield parse(line.removesuffix(b"\n"), number)


def _pace(producer: Producer, wish: Stopping, due: float) -> None:
    while (left_s := due - time.monotonic()) > 0:
        if wish.asked:
            raise Stopped
        producer.poll(min(PAUSE_S, left_s))


def _produce(producer: Producer, sending: Sending, record: Outgoing, wish: Stopping) -> None:
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
            producer.poll(PAUSE_S)
            if wish.asked:
                raise Stopped from None
        else:
            return


def _require_partition(connection: Connection, producer: Producer, sending: Sending) -> None:
    """Raises if the topic or partition does not exist. Asking as a producer creates the topic where the broker does so."""
    deadline = time.monotonic() + min(AUTO_CREATE_WAIT_S, connection.bootstrap.timeout_s)
    while True:
        try:
            found = producer.list_topics(sending.topic, timeout=connection.bootstrap.timeout_s).topics[sending.topic]
        except KafkaException as failure:
            raise connection.error(kafka_error(failure), "topic", sending.topic) from None
        if found.error is None:
            break
        if time.monotonic() > deadline:
            raise connection.error(found.error, "topic", sending.topic)
        time.sleep(PAUSE_S)
    if sending.partition is not None and sending.partition not in found.partitions:
        raise RefusedError(
            "partition", f"{sending.topic}-{sending.partition}", f"does not exist at {connection.bootstrap}"
        )
