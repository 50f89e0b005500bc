"""A broker's settings under Kafka's names, for tools that read them. Read-only: command line and configuration file set them.

One kind is accepted without effect: throttles, which `kafka-reassign-partitions --throttle` sets before it moves anything, and
removes afterwards. `replica.catch_up_bytes_per_s` is the limit here.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.gateways.kafka.config_names import MAPPED, ConfigEntry, config_text
from holdfast.kafka.enums import AlterConfigOperation, ConfigType
from holdfast.log.topic_config import TopicConfig
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import join_host_port

_log: Final = logging.getLogger(__name__)

_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


def are_throttles(configs: Iterable[Any]) -> bool:
    """Whether these changes are of throttles alone."""
    return all(each.name in _THROTTLES for each in configs)


def note_throttles(broker: str, configs: Iterable[Any]) -> None:
    """Changes that are accepted without effect. `InvalidError`: Kafka would refuse them."""
    for each in configs:
        if each.config_operation == AlterConfigOperation.SET:
            if not (each.value and each.value.isascii() and each.value.isdecimal() and int(each.value[:30]) < 1 << 63):
                raise InvalidError(each.name, each.value, "bytes a second, a whole number")
        elif each.config_operation != AlterConfigOperation.DELETE:
            raise InvalidError(f"operation on {each.name}", each.config_operation, "SET (0) or DELETE (1)")
        _log.info(
            "%s=%s of broker %s accepted, without effect: replica.catch_up_bytes_per_s is the limit",
            each.name,
            each.value,
            broker or "(default)",
        )


def broker_config_entries(backend: KafkaBackend, broker: Broker) -> tuple[ConfigEntry, ...]:
    """Every setting of a broker, sorted by name."""
    settings, groups = backend.settings, backend.groups.settings
    values: dict[str, tuple[object, ConfigType, str]] = {
        "node.id": (broker.node, ConfigType.INT, "The node's id, which never changes."),
        "broker.id": (broker.node, ConfigType.INT, "The same as node.id."),
        "broker.rack": (broker.rack or "", ConfigType.STRING, "The zone the agent is in."),
        "advertised.listeners": (
            f"PLAINTEXT://{join_host_port(broker.host, broker.port)}",
            ConfigType.STRING,
            "The address clients connect to.",
        ),
        "num.partitions": (
            settings.auto_create_partitions,
            ConfigType.INT,
            "Partitions of a topic created without a number of partitions.",
        ),
        "default.replication.factor": (
            settings.default_replication_factor,
            ConfigType.INT,
            "Replicas of a topic created without a number of replicas.",
        ),
        "auto.create.topics.enable": (
            settings.auto_create_topics,
            ConfigType.BOOLEAN,
            "Whether a request for a missing topic creates it.",
        ),
        "delete.topic.enable": (True, ConfigType.BOOLEAN, "Topics can be deleted."),
        "socket.request.max.bytes": (settings.request_bytes_max, ConfigType.INT, "The size of the largest request."),
        "max.connections": (settings.connections_max, ConfigType.INT, "The number of open connections."),
        "connections.max.idle.ms": (
            settings.idle_ms,
            ConfigType.LONG,
            "An idle connection is closed after this time.",
        ),
        "fetch.max.bytes": (settings.fetch_bytes_max, ConfigType.INT, "The most bytes one fetch returns."),
        "max.incremental.fetch.session.cache.slots": (
            settings.fetch_sessions_max,
            ConfigType.INT,
            "The number of fetch sessions.",
        ),
        "group.initial.rebalance.delay.ms": (
            groups.initial_delay_ms,
            ConfigType.INT,
            "How long a new group waits for more members.",
        ),
        "group.min.session.timeout.ms": (
            groups.session_min_ms,
            ConfigType.INT,
            "The shortest session timeout of a member.",
        ),
        "group.max.session.timeout.ms": (
            groups.session_max_ms,
            ConfigType.INT,
            "The longest session timeout of a member.",
        ),
        "group.max.size": (groups.size_max, ConfigType.INT, "The most members of a group."),
        "offsets.retention.minutes": (
            groups.retention_ms // 60_000,
            ConfigType.INT,
            "How long offsets are kept once their group is empty.",
        ),
        "offset.metadata.max.bytes": (
            groups.metadata_chars_max,
            ConfigType.INT,
            "The longest metadata of a committed offset.",
        ),
    }
    rows = [
        ConfigEntry(name, config_text(value), kind, text, read_only=True)
        for name, (value, kind, text) in values.items()
    ]
    default = TopicConfig()
    rows += [
        ConfigEntry(
            mapped.broker, config_text(getattr(default, mapped.field)), mapped.kind, mapped.text, read_only=True
        )
        for mapped in MAPPED.values()
        if mapped.broker
    ]
    rows += _urls(backend)
    return tuple(sorted(rows, key=lambda row: row.name))


def _urls(backend: KafkaBackend) -> list[ConfigEntry]:
    """For readers that bypass the brokers. A URL with a secret is sensitive: its value is null."""
    urls = {
        "holdfast.store.url": (backend.store_url, "The URL of the cluster's store."),
        "holdfast.objects.url": (backend.objects_url, "The URL of the cluster's object storage."),
    }
    return [
        ConfigEntry(
            name,
            url,
            ConfigType.STRING if url is not None else ConfigType.PASSWORD,
            text,
            read_only=True,
            sensitive=url is None,
        )
        for name, (url, text) in urls.items()
    ]
