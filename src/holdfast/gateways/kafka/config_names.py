"""Kafka's names for a topic's settings and their effect here. docs/kafka.md has the table; a test keeps both equal.

Two kinds. *Mapped* names are settings of `log.topic_config`, whose own names are accepted, too; some of them are only noted.
*Ignored* names tune Kafka's storage engine: clients and frameworks send them as a matter of course, so they are accepted and not
stored.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.kafka.enums import ConfigType
from holdfast.log.topic_config import AS_RETENTION, NAMES, WITHOUT_EFFECT, TopicConfig, read_config
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB

_log: Final = logging.getLogger(__name__)

_YEARS_MS: Final = 1_000 * 365 * 86_400_000
_WEEK_MS: Final = 7 * 86_400_000


class MappedConfig(NamedTuple):
    """A setting that Kafka has, too. `bounds`: a value outside is clamped."""

    field: str
    kind: ConfigType
    broker: str  # the broker setting that holds the default
    text: str
    bounds: tuple[int, int] | None = None


class ConfigEntry(NamedTuple):
    """A setting as DescribeConfigs lists it. `default` is None where it has none; the value of a sensitive one is None."""

    name: str
    value: str | None
    kind: ConfigType
    text: str
    is_set: bool = False
    read_only: bool = False
    default: str | None = None
    broker: str = ""
    sensitive: bool = False


MAPPED: Final[Mapping[str, MappedConfig]] = {
    "cleanup.policy": MappedConfig(
        "cleanup_policy",
        ConfigType.LIST,
        "log.cleanup.policy",
        "What happens to old records: delete, compact (only the last of each key stays), or both.",
    ),
    "retention.ms": MappedConfig(
        "retention_ms", ConfigType.LONG, "log.retention.ms", "How long records are kept; -1: no limit.", (-1, _YEARS_MS)
    ),
    "retention.bytes": MappedConfig(
        "retention_bytes", ConfigType.LONG, "log.retention.bytes", "How many bytes a partition keeps; -1: no limit."
    ),
    "segment.bytes": MappedConfig(
        "roll_bytes",
        ConfigType.INT,
        "log.segment.bytes",
        "A segment is published once it is this large.",
        (MIB, 100 * MIB),
    ),
    "segment.ms": MappedConfig(
        "roll_ms",
        ConfigType.LONG,
        "log.roll.ms",
        "A segment is published once its oldest record has waited this long.",
        (100, _WEEK_MS),
    ),
    "max.message.bytes": MappedConfig(
        "max_message_bytes", ConfigType.INT, "message.max.bytes", "The largest batch a producer may send."
    ),
    "message.timestamp.type": MappedConfig(
        "message_timestamp_type",
        ConfigType.STRING,
        "log.message.timestamp.type",
        "The timestamp of a record: the producer's (CreateTime) or the log's (LogAppendTime).",
    ),
    "delete.retention.ms": MappedConfig(
        "delete_retention_ms",
        ConfigType.LONG,
        "log.cleaner.delete.retention.ms",
        "How long a tombstone survives compaction.",
        (0, _YEARS_MS),
    ),
    "min.compaction.lag.ms": MappedConfig(
        "min_compaction_lag_ms",
        ConfigType.LONG,
        "log.cleaner.min.compaction.lag.ms",
        "Records younger than this are not compacted.",
        (0, _YEARS_MS),
    ),
    "min.cleanable.dirty.ratio": MappedConfig(
        "min_dirty_ratio",
        ConfigType.DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        "Compact once this share of the log is dirty.",
    ),
    "unclean.leader.election.enable": MappedConfig(
        "unclean_takeover",
        ConfigType.BOOLEAN,
        "unclean.leader.election.enable",
        "Take over without records that exist only in the WAL of an unavailable agent.",
    ),
    "holdfast.unclean.takeover": MappedConfig(
        "unclean_takeover", ConfigType.BOOLEAN, "", "The same as unclean.leader.election.enable."
    ),
    "holdfast.durability": MappedConfig(
        "durability",
        ConfigType.STRING,
        "",
        "When a record is acknowledged: local (on the leader's disk), object (in object storage), quorum (on most replicas).",
    ),
    "holdfast.replication.factor": MappedConfig(
        "replication_factor",
        ConfigType.INT,
        "",
        "How many agents keep what is not in object storage yet: 1, at quorum 2 or 3.",
    ),
    "min.insync.replicas": MappedConfig(
        "min_insync_replicas",
        ConfigType.INT,
        "min.insync.replicas",
        "At quorum: how many replicas must have a record, where that is more than a majority. Otherwise without effect.",
    ),
    "holdfast.partitions": MappedConfig(
        "partition_count", ConfigType.STRING, "", "Whether partitions can be added: growable, or fixed."
    ),
    "holdfast.agent.group": MappedConfig(
        "agent_group",
        ConfigType.STRING,
        "",
        "The group of agents that may lead it; its partitions wait while it has none.",
    ),
    "holdfast.rotation.entries": MappedConfig(
        "rotation_entries",
        ConfigType.LONG,
        "",
        "Records after which a segment is sealed and leadership goes to the next agent; 0: never.",
    ),
    "holdfast.rotation.bytes": MappedConfig(
        "rotation_bytes", ConfigType.LONG, "", "Bytes after which a segment is sealed and leadership goes on; 0: never."
    ),
    "compression.type": MappedConfig(
        "compression_type",
        ConfigType.STRING,
        "compression.type",
        "Without effect: batches keep the producer's compression.",
    ),
    "max.compaction.lag.ms": MappedConfig(
        "max_compaction_lag_ms",
        ConfigType.LONG,
        "log.cleaner.max.compaction.lag.ms",
        "Without effect: compaction has no deadline.",
    ),
    "message.timestamp.before.max.ms": MappedConfig(
        "message_timestamp_before_max_ms",
        ConfigType.LONG,
        "log.message.timestamp.before.max.ms",
        "Without effect: timestamps may be arbitrarily old.",
    ),
    "message.timestamp.after.max.ms": MappedConfig(
        "message_timestamp_after_max_ms",
        ConfigType.LONG,
        "log.message.timestamp.after.max.ms",
        "Without effect: timestamps may be arbitrarily far in the future.",
    ),
    "message.timestamp.difference.max.ms": MappedConfig(
        "message_timestamp_difference_max_ms",
        ConfigType.LONG,
        "log.message.timestamp.difference.max.ms",
        "Without effect: timestamps are not compared with the clock.",
    ),
    "remote.storage.enable": MappedConfig(
        "remote_storage_enable", ConfigType.BOOLEAN, "", "Without effect: segments are always in object storage."
    ),
    "remote.log.copy.disable": MappedConfig(
        "remote_log_copy_disable", ConfigType.BOOLEAN, "", "Without effect: segments are always in object storage."
    ),
    "remote.log.delete.on.disable": MappedConfig(
        "remote_log_delete_on_disable", ConfigType.BOOLEAN, "", "Without effect: segments are always in object storage."
    ),
    "local.retention.ms": MappedConfig(
        "local_retention_ms",
        ConfigType.LONG,
        "",
        "Without effect: local data has no retention of its own.",
        (AS_RETENTION, _YEARS_MS),
    ),
    "local.retention.bytes": MappedConfig(
        "local_retention_bytes", ConfigType.LONG, "", "Without effect: local data has no retention of its own."
    ),
}

IGNORED: Final = frozenset(
    {
        "segment.index.bytes",
        "segment.jitter.ms",
        "index.interval.bytes",
        "flush.messages",
        "flush.ms",
        "file.delete.delay.ms",
        "preallocate",
        "message.downconversion.enable",
        "message.format.version",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)

_TIMESTAMP_TYPES: Final = {"CreateTime": "create_time", "LogAppendTime": "append_time"}
_TIMESTAMP_TYPE_NAMES: Final = {ours: kafkas for kafkas, ours in _TIMESTAMP_TYPES.items()}
_DEFAULTS: Final = TopicConfig()
_FIELDS: Final = {mapped.field: mapped for mapped in reversed(list(MAPPED.values()))}


def config_type_of(name: str) -> ConfigType | None:
    """The type of a setting that can be changed; None if it cannot."""
    mapped = MAPPED.get(name) or _FIELDS.get(name)
    return mapped.kind if mapped is not None else None


def field_of(name: str) -> str | None:
    """The field of `TopicConfig` for a name; None if it is ignored. `InvalidError`: an unknown name."""
    if name in MAPPED:
        return MAPPED[name].field
    if name in NAMES:
        return name
    if name in IGNORED:
        return None
    raise InvalidError("topic config", name, "a topic config of Kafka or Holdfast")


def read_settings(given: Iterable[tuple[str, str | None]]) -> dict[str, object]:
    """A client's settings in the names and types of `TopicConfig`. `InvalidError` names the setting."""
    found: dict[str, object] = {}
    for name, value in given:
        field = field_of(name)
        if value is None:
            raise InvalidError(name, None, "a string")
        if field is None:
            _log.info("%s=%s accepted, without effect", name, value)
            continue
        read = _read(name, field, value)
        if field in WITHOUT_EFFECT and read != getattr(_DEFAULTS, field):
            _log.info("%s=%s noted, without effect", name, value)
        if found.setdefault(field, read) != read:
            raise InvalidError(name, value, f"{found[field]!r}, its value under another name")
    try:
        read_config(found)
    except InvalidError as error:  # each is valid, their combination is not
        raise InvalidError(_named(error.what), error.given, error.allowed) from None
    return found


def _read(name: str, field: str, value: str) -> object:
    kind, bounds = _FIELDS[field].kind, _FIELDS[field].bounds
    text = value.strip()
    if field == "compression_type":
        text = text.lower()
    if kind is ConfigType.BOOLEAN:
        text = text.lower()
    if field == "message_timestamp_type":
        text = _TIMESTAMP_TYPES.get(text, text)
    if bounds is not None and name in MAPPED:  # Kafka allows a wider range under its own names
        text = _within(name, text, bounds)
    try:
        read: object = getattr(read_config({field: text}), field)
    except InvalidError as error:
        if error.what == field:
            raise InvalidError(name, value, _allowed(field, error.allowed)) from None
        raise
    return read


def _within(name: str, text: str, bounds: tuple[int, int]) -> str:
    try:
        number = int(text)
    except ValueError:
        return text  # rejected by `read_config`
    low, high = bounds
    fits = min(max(number, low), high) if number > 0 else min(number, high)
    if fits != number:
        _log.info("%s=%d clamped to %d", name, number, fits)
    return str(fits)


def _allowed(field: str, allowed: str) -> str:
    return "CreateTime or LogAppendTime" if field == "message_timestamp_type" else allowed


def _named(field: str) -> str:
    return next((name for name, mapped in MAPPED.items() if mapped.field == field), field)


def config_text(value: object) -> str:
    """A value in Kafka's spelling."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _TIMESTAMP_TYPE_NAMES.get(str(value), str(value))


@lru_cache(maxsize=256)
def topic_config_entries(config: TopicConfig, overrides: tuple[str, ...]) -> tuple[ConfigEntry, ...]:
    """Every setting of a topic, sorted by name."""
    chosen, default = set(overrides), TopicConfig()
    rows = [
        ConfigEntry(
            name,
            config_text(getattr(config, mapped.field)),
            mapped.kind,
            mapped.text,
            is_set=mapped.field in chosen,
            default=config_text(getattr(default, mapped.field)),
            broker=mapped.broker,
        )
        for name, mapped in MAPPED.items()
    ]
    return tuple(sorted(rows))
