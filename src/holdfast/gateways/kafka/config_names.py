"""Kafka's names for a topic's settings, and what becomes of each here. docs/kafka.md is the table; a test holds both equal.

Three kinds. *Mapped* names are settings of `log.topic_config`, whose own names are accepted, too. *Fixed* names mean something
that is not offered, or cannot be otherwise: only the value they have is accepted. *Ignored* names tune a storage engine that is
not here: clients and frameworks send them as a matter of course, so they are accepted, and nothing is kept of them.
"""

import logging
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.log.topic_config import NAMES, TopicConfig, read_config
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB

_log: Final = logging.getLogger(__name__)

_YEARS_MS: Final = 1_000 * 365 * 86_400_000
_WEEK_MS: Final = 7 * 86_400_000
_LONG_MAX: Final = str((1 << 63) - 1)


class ConfigType(IntEnum):
    """Kafka's types of settings."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class MappedConfig(NamedTuple):
    """A setting Kafka has, too. `bounds`: a value beyond them is taken for the nearest one within."""

    field: str
    kind: ConfigType
    broker: str  # what Kafka calls the default of a whole broker
    text: str
    bounds: tuple[int, int] | None = None


class FixedConfig(NamedTuple):
    """A setting of Kafka's that has one value here."""

    value: str
    kind: ConfigType
    broker: str
    text: str


class ConfigEntry(NamedTuple):
    """A setting as it is described. `default` is None where there is no telling what is one.

    A sensitive one is said to be set, and its value (None) to nobody.
    """

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
        "retention_ms", ConfigType.LONG, "log.retention.ms", "How long records are kept; -1: for ever.", (-1, _YEARS_MS)
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
        "Whose time a record has: the producer's (CreateTime) or the log's (LogAppendTime).",
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
        "Compact once this share of the log is not compacted yet.",
    ),
    "unclean.leader.election.enable": MappedConfig(
        "unclean_takeover",
        ConfigType.BOOLEAN,
        "unclean.leader.election.enable",
        "Go on without records that are only in the WAL of an agent that is away.",
    ),
    "holdfast.unclean.takeover": MappedConfig(
        "unclean_takeover", ConfigType.BOOLEAN, "", "The same as unclean.leader.election.enable."
    ),
    "holdfast.durability": MappedConfig(
        "durability",
        ConfigType.STRING,
        "",
        "When a record is acknowledged: local (on the leader's disk) or object (in object storage).",
    ),
}

FIXED: Final[Mapping[str, FixedConfig]] = {
    "compression.type": FixedConfig(
        "producer", ConfigType.STRING, "compression.type", "Batches are kept as the producer compressed them."
    ),
    "min.insync.replicas": FixedConfig(
        "1",
        ConfigType.INT,
        "min.insync.replicas",
        "A partition has one replica; holdfast.durability says what an ack means.",
    ),
    "max.compaction.lag.ms": FixedConfig(
        _LONG_MAX, ConfigType.LONG, "log.cleaner.max.compaction.lag.ms", "There is no latest time for compaction."
    ),
    "message.timestamp.before.max.ms": FixedConfig(
        _LONG_MAX,
        ConfigType.LONG,
        "log.message.timestamp.before.max.ms",
        "Timestamps may lie as far back as they like.",
    ),
    "message.timestamp.after.max.ms": FixedConfig(
        _LONG_MAX,
        ConfigType.LONG,
        "log.message.timestamp.after.max.ms",
        "Timestamps may lie as far ahead as they like.",
    ),
    "message.timestamp.difference.max.ms": FixedConfig(
        _LONG_MAX,
        ConfigType.LONG,
        "log.message.timestamp.difference.max.ms",
        "Timestamps are not compared with the clock.",
    ),
    "remote.storage.enable": FixedConfig("false", ConfigType.BOOLEAN, "", "Segments are always in object storage."),
    "local.retention.ms": FixedConfig("-2", ConfigType.LONG, "", "There is no retention of its own for what is local."),
    "local.retention.bytes": FixedConfig(
        "-2", ConfigType.LONG, "", "There is no retention of its own for what is local."
    ),
    "remote.log.copy.disable": FixedConfig("false", ConfigType.BOOLEAN, "", "Segments are always in object storage."),
    "remote.log.delete.on.disable": FixedConfig(
        "false", ConfigType.BOOLEAN, "", "Segments are always in object storage."
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
_SPELT: Final = {ours: kafkas for kafkas, ours in _TIMESTAMP_TYPES.items()}
_FIELDS: Final = {mapped.field: mapped for mapped in reversed(list(MAPPED.values()))}


def config_type_of(name: str) -> ConfigType | None:
    """The type of a setting that can be set; None if it cannot."""
    mapped = MAPPED.get(name) or _FIELDS.get(name)
    return mapped.kind if mapped is not None else None


def field_of(name: str) -> str | None:
    """The field of `TopicConfig` a name stands for; None if there is none. `InvalidError`: nobody has heard of it."""
    if name in MAPPED:
        return MAPPED[name].field
    if name in NAMES:
        return name
    if name in FIXED or name in IGNORED:
        return None
    raise InvalidError("topic config", name, "one that Kafka or Holdfast has")


def read_settings(given: Iterable[tuple[str, str | None]]) -> dict[str, object]:
    """What a client asked for, in the names and types of `TopicConfig`. `InvalidError` names the setting it speaks of."""
    found: dict[str, object] = {}
    for name, value in given:
        field = field_of(name)
        if value is None:
            raise InvalidError(name, None, "a value")
        if field is None:
            _check_without_field(name, value)
            continue
        read = _read(name, field, value)
        if found.setdefault(field, read) != read:
            raise InvalidError(name, value, f"{found[field]!r}, which was given by another name")
    try:
        read_config(found)
    except InvalidError as error:  # each fits; together they do not
        raise InvalidError(_named(error.what), error.given, error.allowed) from None
    return found


def _read(name: str, field: str, value: str) -> object:
    kind, bounds = _FIELDS[field].kind, _FIELDS[field].bounds
    text = value.strip()
    if kind is ConfigType.BOOLEAN:
        text = text.lower()
    if field == "message_timestamp_type":
        text = _TIMESTAMP_TYPES.get(text, text)
    if bounds is not None and name in MAPPED:  # Kafka's names, Kafka's ranges: only how much fits is ours
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
        return text  # refused by whoever reads it
    low, high = bounds
    fits = min(max(number, low), high) if number > 0 else min(number, high)
    if fits != number:
        _log.info("%s=%d is taken for %d", name, number, fits)
    return str(fits)


def _check_without_field(name: str, value: str) -> None:
    fixed = FIXED.get(name)
    if fixed is None:
        _log.info("%s=%s is accepted and has no effect here", name, value)
    elif value.strip().lower() != fixed.value:
        raise InvalidError(name, value, f"{fixed.value}: {fixed.text}")


def _allowed(field: str, allowed: str) -> str:
    return "CreateTime or LogAppendTime" if field == "message_timestamp_type" else allowed


def _named(field: str) -> str:
    return next((name for name, mapped in MAPPED.items() if mapped.field == field), field)


def config_text(value: object) -> str:
    """A value as Kafka's clients read it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _SPELT.get(str(value), str(value))


@lru_cache(maxsize=256)
def topic_config_entries(config: TopicConfig, overrides: tuple[str, ...]) -> tuple[ConfigEntry, ...]:
    """Every setting of a topic, by name."""
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
    rows += [
        ConfigEntry(name, fixed.value, fixed.kind, fixed.text, read_only=True, default=fixed.value, broker=fixed.broker)
        for name, fixed in FIXED.items()
    ]
    return tuple(sorted(rows))
