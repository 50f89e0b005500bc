"""Where a slot's records come from, as planning sees it: where partitions begin and end, and where a time is.

The one rule: ends come from the source itself, never from the registry. A Holdfast topic is planned from its metadata; any other
Kafka is asked with its own client.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.range_plan import PlannedRange
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.spark.ranges import PartitionRange, Planner
from holdfast.vocabulary.errors import HoldfastError

KAFKA_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class TopicBounds:
    """Where the partitions of a topic begin and end, by number."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]


class PipelineSource(Protocol):
    """One topic. `BlockedError`: it cannot be asked now."""

    def ends(self) -> TopicBounds:
        """Where partitions begin, and up to where they can be read."""
        ...

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        """The first offset as young as this; the end if there is none."""
        ...

    def narrowed(self, wanted: PlannedRange, bytes_max: int) -> PlannedRange:
        """The range, cut where it would take more bytes, as far as that is known without reading it."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...


class HoldfastSource:
    """A topic of this cluster."""

    def __init__(self, cluster_address: ClusterAddress, topic: str) -> None:
        self._planner, self._topic = Planner(cluster_address), topic

    def ends(self) -> TopicBounds:
        try:
            found = self._planner.topic_offsets(self._topic)
        except (HoldfastError, OSError) as error:
            raise BlockedError(f"topic {self._topic}: {error}") from error
        return TopicBounds(found.starts, found.ends)

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        return self._planner.offset_at(self._topic, partition, timestamp_ms)

    def narrowed(self, wanted: PlannedRange, bytes_max: int) -> PlannedRange:
        whole = PartitionRange(self._topic, wanted.partition, wanted.start, wanted.end)
        first = self._planner.split(whole, rows_max=wanted.end - wanted.start, bytes_max=bytes_max)[0]
        return PlannedRange(wanted.partition, first.start, first.end)

    def close(self) -> None:
        """The planner's connections are the process's."""


class KafkaSource:
    """A topic of any Kafka, asked with its own client; its records come through Spark's connector."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._client: Any = None

    def ends(self) -> TopicBounds:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            client = self._opened()
            topic = client.list_topics(self._config.topic, timeout=KAFKA_TIMEOUT_S).topics[self._config.topic]
            if topic.error is not None:
                raise BlockedError(f"topic {self._config.topic}: {topic.error}")
            found = [
                client.get_watermark_offsets(TopicPartition(self._config.topic, number), timeout=KAFKA_TIMEOUT_S)
                for number in sorted(topic.partitions)
            ]
        except KafkaException as error:
            raise BlockedError(f"topic {self._config.topic}: {error.args[0]}") from None
        return TopicBounds(tuple(low for low, _ in found), tuple(high for _, high in found))

    def offset_at(self, partition: int, timestamp_ms: int) -> int:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            asked = [TopicPartition(self._config.topic, partition, timestamp_ms)]
            found = int(self._opened().offsets_for_times(asked, timeout=KAFKA_TIMEOUT_S)[0].offset)
            return found if found >= 0 else self.ends().ends[partition]
        except KafkaException as error:
            raise BlockedError(f"topic {self._config.topic}: {error.args[0]}") from None

    def narrowed(self, wanted: PlannedRange, bytes_max: int) -> PlannedRange:
        return wanted

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> Any:
        if self._client is None:
            from confluent_kafka import Consumer

            self._client = Consumer({**client_settings(self._config), "group.id": "holdfast-ends"})
        return self._client


def client_settings(config: KafkaConfig) -> dict[str, Any]:
    """How the brokers are reached, in librdkafka's words."""
    security = config.security
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(config.brokers),
        "security.protocol": security.protocol,
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
    """The topic of a recipe."""
    return KafkaSource(config) if config.brokers else HoldfastSource(cluster_address, config.topic)


class GroupOffsets:
    """Checkpoints mirrored as a group's offsets, so that lag tools show them. Nothing hangs on them."""

    def __init__(self, config: KafkaConfig, *, bootstrap: str, pipeline_id: str) -> None:
        self._config, self._bootstrap = config, bootstrap
        self._group = config.group_id or f"holdfast-{pipeline_id}"
        self._client: Any = None

    def mirror(self, checkpoints: dict[int, int]) -> str:
        """Commit them without waiting. What went wrong at once is returned, and is only worth a warning."""
        if not checkpoints or not (self._config.brokers or self._bootstrap):
            return ""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            if self._client is None:
                self._client = self._opened()
            offsets = [TopicPartition(self._config.topic, number, offset) for number, offset in checkpoints.items()]
            self._client.commit(offsets=offsets, asynchronous=True)
            self._client.poll(0)
        except KafkaException as error:
            return f"checkpoints are not mirrored to group {self._group}: {error.args[0]}"
        return ""

    def _opened(self) -> Any:
        from confluent_kafka import Consumer

        settings = client_settings(self._config)
        settings["bootstrap.servers"] = settings["bootstrap.servers"] or self._bootstrap
        return Consumer({**settings, "group.id": self._group})

    def close(self) -> None:
        """Send what is on its way."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
