"""The source of a slot: first and end offsets of its partitions, and offsets by time.

The one rule: end offsets come from the source itself, never from the registry. A Holdfast topic is planned from its metadata; any
other Kafka is queried with librdkafka.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.kafka_topic_ids import KafkaTopicIds
from holdfast.pipeline.driver.range_plan import PlannedRange
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.spark.ranges import PartitionRange, Planner
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError

KAFKA_TIMEOUT_S: Final = 10.0
_BROKERS_ASKED_AT_ONCE_MAX: Final = 32
READ_COMMITTED: Final = "read_committed"
"""Records of aborted transactions are none: ends, samples and Spark's connector, which would read them, agree on it."""


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """First and end offsets of the partitions of a topic, by number."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    topic_id: str = ""
    """Empty: the source has no ids."""
    unknown: Mapping[int, str] = field(default_factory=dict)
    """Partitions whose offsets could not be read now (they are 0 here), and why."""


class PipelineSource(Protocol):
    """One topic. `BlockedError`: it does not respond now."""

    def bounds(self) -> TopicBounds:
        """First and end offsets of every partition."""
        ...

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        """The first offset with this timestamp or a later one; the end if there is none."""
        ...

    def narrowed(self, planned: PlannedRange, bytes_max: int) -> PlannedRange:
        """The range, cut at `bytes_max` as far as sizes are known without reading it."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class HoldfastSource:
    """A topic of this cluster."""

    def __init__(self, cluster_address: ClusterAddress, topic: str) -> None:
        self._planner, self._topic = Planner(cluster_address), topic

    def bounds(self) -> TopicBounds:
        try:
            found = self._planner.topic_offsets(self._topic)
        except (HoldfastError, OSError) as error:
            raise BlockedError(f"topic {self._topic}: {error}") from error
        return TopicBounds(found.starts, found.ends, found.topic_id)

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        return self._planner.offset_at(self._topic, partition, timestamp_ms)

    def narrowed(self, planned: PlannedRange, bytes_max: int) -> PlannedRange:
        whole = PartitionRange(self._topic, planned.partition, planned.start, planned.end)
        first = self._planner.split(whole, rows_max=planned.end - planned.start, bytes_max=bytes_max)[0]
        return PlannedRange(planned.partition, first.start, first.end)

    def close(self) -> None:
        """The planner's connections belong to the process."""


class KafkaSource:
    """A topic of any Kafka, queried with librdkafka; its records come through Spark's connector."""

    def __init__(self, config: KafkaConfig, *, clock: Clock | None = None) -> None:
        self._config, self._clock = config, clock or RealClock()
        self._client: Any = None
        connection = {name: value for name, value in client_settings(config).items() if name != "enable.auto.commit"}
        self._ids = KafkaTopicIds(connection, timeout_s=KAFKA_TIMEOUT_S)

    def bounds(self) -> TopicBounds:
        from confluent_kafka import KafkaException

        try:
            client = self._connected()
            topic = client.list_topics(self._config.topic, timeout=KAFKA_TIMEOUT_S).topics[self._config.topic]
            if topic.error is not None:
                raise BlockedError(f"topic {self._config.topic}: {topic.error}")
            topic_id = self._ids.of(self._config.topic)
        except KafkaException as error:
            raise BlockedError(f"topic {self._config.topic}: {error.args[0]}") from None
        found = self._offsets(client, {number: each.leader for number, each in topic.partitions.items()})
        unknown = {
            number: f"partition {number} of topic {self._config.topic}: {offsets}"
            for number, offsets in sorted(found.items())
            if isinstance(offsets, str)
        }
        known = [(0, 0) if isinstance(offsets, str) else offsets for _, offsets in sorted(found.items())]
        starts, ends = tuple(low for low, _ in known), tuple(high for _, high in known)
        return TopicBounds(starts, ends, topic_id, unknown=unknown)

    def _offsets(self, client: Any, leaders: Mapping[int, int]) -> dict[int, tuple[int, int] | str]:
        """First and end offsets by partition, or why they could not be read. Brokers are asked at the same time."""
        found: dict[int, tuple[int, int] | str] = {}
        led: dict[int, list[int]] = {}
        for number, leader in sorted(leaders.items()):
            if leader >= 0:
                led.setdefault(leader, []).append(number)
            else:  # the client would wait for one
                found[number] = "it has no leader"
        until_ms = self._clock.boot_ms() + round(KAFKA_TIMEOUT_S * 1_000)
        with ThreadPoolExecutor(max(1, min(len(led), _BROKERS_ASKED_AT_ONCE_MAX))) as threads:
            for part in threads.map(lambda numbers: self._offsets_of_leader(client, numbers, until_ms), led.values()):
                found |= part
        return found

    def _offsets_of_leader(
        self, client: Any, numbers: Sequence[int], until_ms: int
    ) -> dict[int, tuple[int, int] | str]:
        """One after the other, until the deadline of all: a broker that does not respond is waited for once."""
        from confluent_kafka import KafkaException, TopicPartition

        found: dict[int, tuple[int, int] | str] = {}
        reason = "its leader was not asked in time"
        for number in numbers:
            left_s = (until_ms - self._clock.boot_ms()) / 1_000
            if left_s <= 0:
                found[number] = reason
                continue
            try:
                asked = TopicPartition(self._config.topic, number)
                found[number] = client.get_watermark_offsets(asked, timeout=left_s)
            except KafkaException as error:
                found[number] = reason = str(error.args[0])
        return found

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            times = [TopicPartition(self._config.topic, partition, timestamp_ms)]
            found = int(self._connected().offsets_for_times(times, timeout=KAFKA_TIMEOUT_S)[0].offset)
            if found >= 0:
                return found
            bounds = self.bounds()
            if partition in bounds.unknown:
                raise BlockedError(bounds.unknown[partition])
            return bounds.ends[partition]
        except KafkaException as error:
            raise BlockedError(f"topic {self._config.topic}: {error.args[0]}") from None

    def narrowed(self, planned: PlannedRange, bytes_max: int) -> PlannedRange:
        return planned

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        if self._client is None:
            from confluent_kafka import Consumer

            self._client = Consumer({**client_settings(self._config), "group.id": "holdfast-ends"})
        return self._client


def client_settings(config: KafkaConfig) -> dict[str, Any]:
    """The connection as librdkafka's settings."""
    security = config.security
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(config.brokers),
        "security.protocol": security.protocol,
        "isolation.level": READ_COMMITTED,  # a partition ends where its first open transaction begins
        "enable.auto.commit": False,
        "log_level": 2,
    }
    if security.mechanism is not None:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    if security.ca_file:
        settings["ssl.ca.location"] = security.ca_file
    return settings


def open_source(config: KafkaConfig, cluster_address: ClusterAddress) -> PipelineSource:
    """The source of a revision."""
    return KafkaSource(config) if config.brokers else HoldfastSource(cluster_address, config.topic)


class GroupOffsets:
    """Checkpoints mirrored as offsets of a consumer group, for lag tools. Nothing depends on them."""

    def __init__(self, config: KafkaConfig, *, cluster_address: ClusterAddress, pipeline_id: str) -> None:
        self._config, self._cluster_address = config, cluster_address
        self._group = config.group_id or f"holdfast-{pipeline_id}"
        self._client: Any = None

    def mirror(self, checkpoints: dict[int, int]) -> str:
        """Commit them without waiting. An immediate failure is returned as a warning."""
        if not checkpoints or not (self._config.brokers or self._cluster_address.bootstrap):
            return ""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            if self._client is None:
                self._client = self._connected()
            offsets = [TopicPartition(self._config.topic, number, offset) for number, offset in checkpoints.items()]
            self._client.commit(offsets=offsets, asynchronous=True)
            self._client.poll(0)
        except KafkaException as error:
            return f"checkpoints are not mirrored to group {self._group}: {error.args[0]}"
        return ""

    def _connected(self) -> Any:
        from confluent_kafka import Consumer

        settings = client_settings(self._config)
        if not self._config.brokers:
            login = self._cluster_address.login
            settings["bootstrap.servers"] = self._cluster_address.bootstrap
            settings |= login.properties() if login is not None else {}
        return Consumer({**settings, "group.id": self._group})

    def close(self) -> None:
        """Flush pending commits and close."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
