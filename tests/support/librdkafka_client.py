"""confluent-kafka for the suite: send and wait for acknowledgements, read to the end, messages as plain values."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec
from tests.support.broker import Broker
from tests.support.record_shapes import Header, Shape

from holdfast.vocabulary.clock import RealClock

TIMEOUT_S = 30.0
CLOCK = RealClock()
QUIET_POLLS = 3
OFFSETS: Any = OffsetSpec  # its methods have no types
Config = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """A message as it was read or acknowledged."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_type: int
    timestamp_ms: int


def got(message: Message) -> Got:
    """`message` as a value; its error, if it has one, as an exception."""
    if (error := message.error()) is not None:
        raise KafkaException(error)
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    kind, at_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return Got(
        topic=topic,
        partition=partition,
        offset=-1 if offset is None else offset,  # acks=0: nobody knows
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
        timestamp_type=kind,
        timestamp_ms=at_ms,
    )


def producer(broker: Broker, config: Config | None = None) -> Producer:
    """A producer with short timeouts that keeps the order unless `config` changes that.

    Without idempotence this client reorders what it has to send again, unless one request at a time is under way; with
    it, each new producer takes half a second to begin.
    """
    given = config or {}
    order: Config = {} if given.keys() & {"acks", "enable.idempotence"} else {"acks": "all", "max.in.flight": 1}
    return Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 30_000, **order, **given})


def send(
    broker: Broker, topic: str, shapes: Iterable[Shape], config: Config | None = None, partition: int = -1
) -> list[Got]:
    """Send all and return the acknowledged messages, in the order of the responses."""
    done: list[Message] = []
    client = producer(broker, config)
    for shape in shapes:
        put(client, topic, shape, done, partition)
    assert client.flush(TIMEOUT_S) == 0
    return [got(message) for message in done]


def put(client: Producer, topic: str, shape: Shape, done: list[Message], partition: int = -1) -> None:
    """Produce one record; its message is appended to `done` with its delivery report."""
    client.produce(
        topic,
        key=shape.key,
        value=shape.value,
        partition=partition,
        headers=list(shape.headers),
        timestamp=shape.timestamp_ms or 0,  # to this client 0 means now
        on_delivery=lambda _, message: done.append(message),
    )


def send_values(
    broker: Broker, topic: str, values: Iterable[bytes], config: Config | None = None, partition: int = 0
) -> list[Got]:
    """Send records without keys to one partition."""
    return send(broker, topic, (Shape(name="", key=None, value=value) for value in values), config, partition)


@contextmanager
def consuming(broker: Broker, config: Config | None = None) -> Iterator[Consumer]:
    """A consumer for the body, by default in a group of its own and without auto-commit."""
    settings: Config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": broker.unique("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **(config or {}),
    }
    client = Consumer(settings)
    try:
        yield client
    finally:
        client.close()


def leave(client: Consumer) -> None:
    """Leave the group, and wait for the response, before closing.

    A client that is closed while it is being told of an assignment may wait for itself for ever (FINDINGS.md): so do this where
    others of the group come and go.
    """
    try:
        client.unsubscribe()
    except KafkaException:
        return  # a fatal error: it is a member of nothing any more
    quiet, until_ms = 0, CLOCK.boot_ms() + TIMEOUT_S * 1_000
    while quiet < QUIET_POLLS and CLOCK.boot_ms() < until_ms:
        client.poll(0.02)
        quiet = 0 if client.assignment() else quiet + 1


def take(client: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Got]:
    """The next `count` messages; fewer when they do not come in time."""
    messages: list[Got] = []
    deadline_ms = CLOCK.boot_ms() + timeout_s * 1_000
    while len(messages) < count and CLOCK.boot_ms() < deadline_ms:
        messages += [got(each) for each in client.consume(count - len(messages), 0.1)]
    return messages


def take_until(client: Consumer, value: bytes, timeout_s: float = TIMEOUT_S) -> list[Got]:
    """Everything up to the first message with `value`. Informational errors of the client are skipped."""
    messages: list[Got] = []
    deadline_ms = CLOCK.boot_ms() + timeout_s * 1_000
    while not messages or messages[-1].value != value:
        assert CLOCK.boot_ms() < deadline_ms, f"after {timeout_s} s {len(messages)} read, but not {value!r}"
        if (message := client.poll(0.2)) is not None and message.error() is None:
            messages.append(got(message))
    return messages


def read_all(
    broker: Broker,
    topic: str,
    partitions: Sequence[int] = (0,),
    config: Config | None = None,
    start: int = OFFSET_BEGINNING,
    timeout_s: float = TIMEOUT_S,
) -> list[Got]:
    """Everything from `start` to the end of each partition, in the order of arrival."""
    # The end is told by an answer without records, so ask for one soon.
    with consuming(broker, {"enable.partition.eof": True, "fetch.wait.max.ms": 20, **(config or {})}) as client:
        # Who asks where a partition begins before its leader is known asks again half a second later.
        client.list_topics(topic, timeout=timeout_s)
        client.assign([TopicPartition(topic, partition, start) for partition in partitions])
        return drain(client, len(partitions), timeout_s)


def drain(client: Consumer, partitions: int, timeout_s: float = TIMEOUT_S) -> list[Got]:
    """What an assigned consumer with `enable.partition.eof` reads until `partitions` partitions have ended."""
    messages: list[Got] = []
    ended: set[tuple[str | None, int | None]] = set()
    deadline_ms = CLOCK.boot_ms() + timeout_s * 1_000
    while len(ended) < partitions:
        assert CLOCK.boot_ms() < deadline_ms, f"after {timeout_s} s {len(messages)} read, {len(ended)} partitions ended"
        for message in client.consume(1_000, 0.05):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
            else:
                messages.append(got(message))
    return messages


def values(messages: Iterable[Got]) -> list[bytes]:
    """Their values, which must not be null."""
    found = []
    for message in messages:
        assert message.value is not None
        found.append(message.value)
    return found
