"""A broker's settings in Kafka's names: what tools look up before they decide. Read-only: the command line sets them."""

from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.gateways.kafka.config_names import FIXED, MAPPED, ConfigEntry, ConfigType, config_text
from holdfast.log.topic_config import TopicConfig


def broker_config_entries(backend: KafkaBackend, broker: Broker) -> tuple[ConfigEntry, ...]:
    """Every setting of a broker, by name."""
    settings, groups = backend.settings, backend.groups.settings
    values: dict[str, tuple[object, ConfigType, str]] = {
        "node.id": (broker.node, ConfigType.INT, "The node's number, for ever."),
        "broker.id": (broker.node, ConfigType.INT, "The same as node.id."),
        "broker.rack": (broker.rack or "", ConfigType.STRING, "The zone the agent is in."),
        "advertised.listeners": (
            f"PLAINTEXT://{_host(broker.host)}:{broker.port}",
            ConfigType.STRING,
            "Where clients reach this node.",
        ),
        "num.partitions": (
            settings.auto_create_partitions,
            ConfigType.INT,
            "Partitions of a topic whose creator does not say how many.",
        ),
        "default.replication.factor": (1, ConfigType.INT, "A partition has one replica."),
        "auto.create.topics.enable": (
            settings.auto_create_topics,
            ConfigType.BOOLEAN,
            "Whether asking for a topic makes it.",
        ),
        "delete.topic.enable": (True, ConfigType.BOOLEAN, "Topics can be deleted."),
        "socket.request.max.bytes": (settings.request_bytes_max, ConfigType.INT, "The largest request."),
        "max.connections": (settings.connections_max, ConfigType.INT, "Connections at a time."),
        "connections.max.idle.ms": (
            settings.idle_ms,
            ConfigType.LONG,
            "A connection without a request for so long is closed.",
        ),
        "fetch.max.bytes": (settings.fetch_bytes_max, ConfigType.INT, "What one fetch returns at most."),
        "max.incremental.fetch.session.cache.slots": (
            settings.fetch_sessions_max,
            ConfigType.INT,
            "Fetch sessions at a time.",
        ),
        "group.initial.rebalance.delay.ms": (
            groups.initial_delay_ms,
            ConfigType.INT,
            "How long a new group waits for more members.",
        ),
        "group.min.session.timeout.ms": (
            groups.session_min_ms,
            ConfigType.INT,
            "The shortest session a member may ask for.",
        ),
        "group.max.session.timeout.ms": (
            groups.session_max_ms,
            ConfigType.INT,
            "The longest session a member may ask for.",
        ),
        "group.max.size": (groups.size_max, ConfigType.INT, "Members of a group."),
        "offsets.retention.minutes": (
            groups.retention_ms // 60_000,
            ConfigType.INT,
            "How long offsets outlive their group's last member.",
        ),
        "offset.metadata.max.bytes": (groups.metadata_chars_max, ConfigType.INT, "Metadata of one committed offset."),
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
    rows += [
        ConfigEntry(fixed.broker, fixed.value, fixed.kind, fixed.text, read_only=True)
        for fixed in FIXED.values()
        if fixed.broker
    ]
    rows += _urls(backend)
    return tuple(sorted(rows, key=lambda row: row.name))


def _urls(backend: KafkaBackend) -> list[ConfigEntry]:
    """Where readers that go past the brokers find everything. What holds a secret is not told: null, and sensitive."""
    told = {
        "holdfast.store.url": (backend.store_url, "Where the cluster's store is."),
        "holdfast.objects.url": (backend.objects_url, "Where the cluster's objects are."),
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
        for name, (url, text) in told.items()
    ]


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
