"""Topics of a cluster: create, describe, grow, configure, delete."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Node
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from holdfast.client.kafka_errors import kafka_error
from holdfast.client.librdkafka import RETRY_PAUSE_S, KafkaClient
from holdfast.client.partition_offsets import PartitionOffsets, partition_offsets
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.host_port import join_host_port

TOPIC_SOURCE: Final = "topic"
SETTLE_TIMEOUT_S: Final = 2.0
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: TOPIC_SOURCE,
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
}


class TopicSetting(NamedTuple):
    """One setting of a topic: its value, where that was set, and the default."""

    name: str
    value: str | None
    source: str
    default: str | None
    read_only: bool


class PartitionRow(NamedTuple):
    """One partition. Offsets are None while it has no leader."""

    partition: int
    leader: int | None
    leader_address: str | None
    epoch: int | None
    replicas: list[int]
    in_sync: list[int]
    earliest: int | None
    latest: int | None
    records: int | None


def create_topic(
    connection: KafkaClient, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
) -> bool:
    """Create it and wait for its leaders; False if it existed already."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config))
    found = connection.call(lambda left_s: connection.admin.create_topics([new], request_timeout=left_s))[name]
    if isinstance(found, KafkaError):
        if found.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise connection.error(found, "topic", name, change="creating")
    if not _wait_until(lambda: _all_led(connection, name), within_s=connection.bootstrap.timeout_s):
        raise UnavailableError(f"Kafka at {connection.bootstrap}", f"topic {name} is created, but has no leaders yet")
    return True


def add_partitions(connection: KafkaClient, name: str, count: int) -> None:
    """Grow it to `count` partitions and wait for their leaders."""
    wanted = NewPartitions(name, count)
    connection.call_one(
        "topic",
        name,
        lambda left_s: connection.admin.create_partitions([wanted], request_timeout=left_s)[name],
        change="adding partitions to",
    )
    if not _wait_until(lambda: _all_led(connection, name, count), within_s=connection.bootstrap.timeout_s):
        raise UnavailableError(f"Kafka at {connection.bootstrap}", f"topic {name} has grown, but has no leaders yet")


def set_replication_factor(connection: KafkaClient, name: str, factor: int) -> int:
    """Change the number of replicas of a topic of a Holdfast cluster; returns what it is afterwards, since it may be capped.

    As a setting, because librdkafka reassigns no partitions.
    """
    changed = alter_topic_settings(connection, name, to={"holdfast.replication.factor": str(factor)}, unset=())
    return next((int(setting.value or factor) for setting in changed), factor)


def delete_topics(connection: KafkaClient, names: Sequence[str]) -> dict[str, HoldfastError | None]:
    """The error of each topic; None: it is deleted."""
    found = connection.call(lambda left_s: connection.admin.delete_topics(list(names), request_timeout=left_s))
    done = {name for name, answer in found.items() if not isinstance(answer, KafkaError)}
    _wait_until(lambda: not done or not done & {*_metadata(connection)}, within_s=SETTLE_TIMEOUT_S)
    return {
        name: connection.error(answer, "topic", name, change="deleting") if isinstance(answer, KafkaError) else None
        for name, answer in found.items()
    }


def list_topics(connection: KafkaClient) -> list[TopicDescription]:
    """Every topic, by name."""
    names = sorted(_metadata(connection))
    return list(connection.describe(names).values()) if names else []


def partition_rows(connection: KafkaClient, topics: Iterable[TopicDescription]) -> dict[str, list[PartitionRow]]:
    """The partitions of each topic."""
    wanted = list(topics)
    places = [(topic.name, info.id) for topic in wanted for info in topic.partitions if _is_alive(info.leader)]
    offsets = partition_offsets(connection, places)
    return {
        topic.name: [_row(info, offsets.get((topic.name, info.id))) for info in topic.partitions] for topic in wanted
    }


def topic_settings(connection: KafkaClient, topics: Sequence[str]) -> dict[str, list[TopicSetting]]:
    """All settings of each topic, by name."""
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = connection.call(lambda left_s: connection.admin.describe_configs(asked, request_timeout=left_s))
    answers = connection.raise_for_errors("topic", {resource.name: answer for resource, answer in found.items()})
    return {name: sorted(_setting(entry) for entry in answers[name].values()) for name in topics}


def alter_topic_settings(
    connection: KafkaClient, topic: str, *, to: Mapping[str, str], unset: Iterable[str]
) -> list[TopicSetting]:
    """Change these settings atomically; returns all settings afterwards."""
    changes = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in to.items()]
    changes += [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in unset]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    connection.call_one(
        "topic",
        topic,
        lambda left_s: connection.admin.incremental_alter_configs([resource], request_timeout=left_s)[resource],
        change="changing the settings of",
    )
    changed: list[TopicSetting] = []

    def settled() -> bool:
        found = topic_settings(connection, [topic])[topic]
        changed[:] = [setting for setting in found if setting.name in to or setting.name in unset]
        return all(
            setting.value == to[setting.name] if setting.name in to else setting.source != TOPIC_SOURCE
            for setting in changed
        )

    _wait_until(settled, within_s=SETTLE_TIMEOUT_S)
    return changed


def _metadata(connection: KafkaClient) -> dict[str, TopicMetadata]:
    """Every topic. A request for all topics, unlike one for a single topic, never creates any."""
    try:
        return connection.admin.list_topics(timeout=connection.bootstrap.timeout_s).topics
    except KafkaException as failure:
        raise connection.error(kafka_error(failure), "topics of", str(connection.bootstrap)) from None


def _all_led(connection: KafkaClient, name: str, count: int = 1) -> bool:
    found = _metadata(connection).get(name)
    if found is None or len(found.partitions) < count:
        return False
    return all(each.leader >= 0 for each in found.partitions.values())


def _wait_until(condition: Callable[[], bool], *, within_s: float) -> bool:
    """Whether it becomes true: other brokers see a change a moment after the one that made it."""
    clock, pause = RealClock(), threading.Event()
    deadline_ms = clock.boot_ms() + within_s * 1_000
    while not condition():
        if clock.boot_ms() > deadline_ms:
            return False
        pause.wait(RETRY_PAUSE_S)
    return True


def _row(info: Any, found: PartitionOffsets | KafkaError | None) -> PartitionRow:
    known = found if isinstance(found, PartitionOffsets) else None
    return PartitionRow(
        partition=info.id,
        leader=info.leader.id if _is_alive(info.leader) else None,
        leader_address=join_host_port(info.leader.host, info.leader.port) if _is_alive(info.leader) else None,
        epoch=known.leader_epoch if known else None,
        replicas=[node.id for node in info.replicas],
        in_sync=[node.id for node in info.isr],
        earliest=known.offsets.start if known else None,
        latest=known.offsets.end if known else None,
        records=len(known.offsets) if known else None,
    )


def _is_alive(leader: Node | None) -> bool:
    return leader is not None and leader.id >= 0


def _setting(entry: ConfigEntry) -> TopicSetting:
    source = ConfigSource(entry.source)
    fallbacks = [
        each.value for each in entry.synonyms.values() if ConfigSource(each.source) is ConfigSource.DEFAULT_CONFIG
    ]
    default = entry.value if source is ConfigSource.DEFAULT_CONFIG else next(iter(fallbacks), None)
    value = "(hidden)" if entry.is_sensitive else entry.value
    return TopicSetting(entry.name, value, _SOURCES.get(source, "unknown"), default, bool(entry.is_read_only))
