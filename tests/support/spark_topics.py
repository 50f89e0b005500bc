"""Topics for the source's tests: made and filled on a real broker, and how to wait until they are published."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from tests.support.broker import Broker
from tests.support.waiting import until

from holdfast.client.cluster_address import ClusterAddress
from holdfast.spark.clusters import discover_urls
from holdfast.spark.ranges import PartitionRange, Planner, ReadCounters, read_range
from holdfast.vocabulary.random import SeededRandom

FLUSH_S = 60.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to be sent; without a time it gets the producer's."""

    value: bytes | None
    partition: int = 0
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)


def send(broker: Broker, topic: str, records: Iterable[Sent], **settings: object) -> None:
    """Send the records; return when all are acknowledged."""
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 5, **settings}
    )
    for each in records:
        while True:
            try:
                producer.produce(
                    topic,
                    each.value,
                    each.key,
                    each.partition,
                    timestamp=each.timestamp_ms,
                    headers=each.headers or None,
                    on_delivery=on_delivery,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(FLUSH_S) == 0
    assert not failed


def numbered(count: int, partitions: int = 1, first: int = 0) -> list[Sent]:
    """Records whose values are their numbers, dealt to the partitions in turn."""
    return [Sent(b"%d" % number, number % partitions) for number in range(first, first + count)]


def address_of(broker: Broker) -> ClusterAddress:
    """Brokers, store and objects."""
    return discover_urls(ClusterAddress(bootstrap=broker.bootstrap), contact_ms=None)


def published_address_of(broker: Broker) -> ClusterAddress:
    """Store and objects alone."""
    cluster_address = address_of(broker)
    return ClusterAddress(store=cluster_address.store, objects=cluster_address.objects)


def await_published(broker: Broker, topic: str) -> None:
    """Return when everything that was sent is in object storage."""
    planner, published = Planner(address_of(broker)), Planner(published_address_of(broker))
    until(
        lambda: published.topic_offsets(topic).ends == planner.topic_offsets(topic).ends, what=f"{topic} is published"
    )


def values(
    cluster_address: ClusterAddress, topic: str, partition: int = 0, start: int = 0, end: int | None = None
) -> list[bytes | None]:
    """The values of a range, up to the end if none is given."""
    stop = Planner(cluster_address).topic_offsets(topic).ends[partition] if end is None else end
    found: list[bytes | None] = []
    for table in read_range(cluster_address, PartitionRange(topic, partition, start, stop)):
        found += table.column("value").to_pylist()
    return found


def count_rows(cluster_address: ClusterAddress, topic: str, partitions: int) -> tuple[int, ReadCounters]:
    """Read all of a topic: how many rows, and what it cost."""
    ends, counters = Planner(cluster_address).topic_offsets(topic), ReadCounters()
    for number in range(partitions):
        for _ in read_range(
            cluster_address, PartitionRange(topic, number, ends.starts[number], ends.ends[number]), counters=counters
        ):
            pass
    return counters.rows, counters


def options(broker: Broker, topic: str, more: Mapping[str, object] | None = None) -> dict[str, str]:
    """Options of a reader of one topic."""
    return {"bootstrap": broker.bootstrap, "topics": topic} | {name: str(value) for name, value in (more or {}).items()}


_noise = SeededRandom(7)


def noise(size: int) -> bytes:
    """Bytes that no packing makes smaller."""
    return _noise.random.randbytes(size)


def publish_quickly(broker: Broker, topic: str) -> None:
    """From now on, publish what is there at once."""
    _set(broker, topic, "segment.ms", "100")


def publish_slowly(broker: Broker, topic: str) -> None:
    """Undo `quicken`: what comes now stays with the agent."""
    _set(broker, topic, "segment.ms", "86400000")


def _set(broker: Broker, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in broker.admin.incremental_alter_configs([resource]).values():
        future.result(20)


def delete_before(broker: Broker, topic: str, offset: int, partition: int = 0) -> None:
    """Remove the records before `offset`."""
    for future in broker.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(20)
