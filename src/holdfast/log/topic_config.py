"""What can be set per topic: names, defaults and limits. docs/topics.md is the table for people, and a test holds both equal.

The one rule: a topic stores only what was set, so that a better default reaches topics that never chose.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from holdfast.log.batches import RecordBatchLimits
from holdfast.log.model import DURABILITY_LEVELS, QUORUM, REPLICAS_MAX, CleanupPolicy, PartitionConfig
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between, check_one_of, settings_from

CLEANUP_POLICIES: Final = ("delete", "compact", "compact,delete")
TIMESTAMP_TYPES: Final = ("create_time", "append_time")
COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
LOCAL: Final = "local"
REPLICAS_MIN: Final = 2  # of a quorum
GROWABLE_COUNT: Final = "growable"
FIXED_COUNT: Final = "fixed"
PARTITION_COUNTS: Final = (GROWABLE_COUNT, FIXED_COUNT)
DEFAULT_GROUP: Final = "default"
NO_LIMIT: Final = -1
AS_RETENTION: Final = -2  # of local retention: the topic's own
LONG_MAX: Final = (1 << 63) - 1

_GROUP: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}", re.ASCII)
_DAY_MS: Final = 86_400_000
_ROTATION_WORDS: Final[Mapping[str, int]] = {"on": 1_000_000, "off": 0}
_YEARS_MS: Final = 1_000 * 365 * _DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's settings. `docs/topics.md` explains them.

    Those in `WITHOUT_EFFECT` are kept for tools that set and compare them, such as MirrorMaker.
    """

    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = NO_LIMIT
    cleanup_policy: str = "delete"
    roll_bytes: int = 8 * MIB
    roll_ms: int = 60_000
    durability: str = LOCAL
    replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_takeover: bool = False
    max_message_bytes: int = RecordBatchLimits().batch_bytes_max
    message_timestamp_type: str = "create_time"
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    min_dirty_ratio: float = 0.5
    partition_count: str = GROWABLE_COUNT
    agent_group: str = DEFAULT_GROUP
    rotation_entries: int = 0
    rotation_bytes: int = 0
    compression_type: str = "producer"
    max_compaction_lag_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = LONG_MAX
    message_timestamp_difference_max_ms: int = LONG_MAX
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    local_retention_ms: int = AS_RETENTION
    local_retention_bytes: int = AS_RETENTION

    def __post_init__(self) -> None:
        check_between("retention_ms", self.retention_ms, NO_LIMIT, _YEARS_MS)
        check_at_least("retention_bytes", self.retention_bytes, NO_LIMIT)
        check_one_of("cleanup_policy", self.cleanup_policy, CLEANUP_POLICIES)
        check_between("roll_bytes", self.roll_bytes, MIB, 100 * MIB)
        check_between("roll_ms", self.roll_ms, 100, 7 * _DAY_MS)
        check_one_of("durability", self.durability, (*DURABILITY_LEVELS, QUORUM))
        check_between("replication_factor", self.replication_factor, 1, REPLICAS_MAX)
        check_between("min_insync_replicas", self.min_insync_replicas, 1, (1 << 31) - 1)
        check_between("max_message_bytes", self.max_message_bytes, KIB, 32 * MIB)
        check_one_of("message_timestamp_type", self.message_timestamp_type, TIMESTAMP_TYPES)
        check_between("delete_retention_ms", self.delete_retention_ms, 0, _YEARS_MS)
        check_between("min_compaction_lag_ms", self.min_compaction_lag_ms, 0, _YEARS_MS)
        check_between("min_dirty_ratio", self.min_dirty_ratio, 0, 1)
        check_one_of("partition_count", self.partition_count, PARTITION_COUNTS)
        if not _GROUP.fullmatch(self.agent_group):
            raise InvalidError("agent_group", self.agent_group[:300], "1 to 100 letters, digits, . _ and -")
        check_between("rotation_entries", self.rotation_entries, 0, LONG_MAX)
        check_between("rotation_bytes", self.rotation_bytes, 0, LONG_MAX)
        check_one_of("compression_type", self.compression_type, COMPRESSION_TYPES)
        check_between("max_compaction_lag_ms", self.max_compaction_lag_ms, 1, LONG_MAX)
        for name in ("before", "after", "difference"):
            name = f"message_timestamp_{name}_max_ms"
            check_between(name, getattr(self, name), 0, LONG_MAX)
        check_between("local_retention_ms", self.local_retention_ms, AS_RETENTION, _YEARS_MS)
        check_between("local_retention_bytes", self.local_retention_bytes, AS_RETENTION, LONG_MAX)
        if self.remote_storage_enable:  # as Kafka does
            _check_local("ms", self.local_retention_ms, self.retention_ms)
            _check_local("bytes", self.local_retention_bytes, self.retention_bytes)
        if self.compacted and self.unclean_takeover:
            raise InvalidError(
                "unclean_takeover",
                True,
                "false on a compacted topic: what was left out could not be appended again (docs/how-to/lost-disk.md)",
            )

    @property
    def compacted(self) -> bool:
        """Whether only the last value of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def replicated(self) -> bool:
        """Whether several agents keep the tail of a partition."""
        return self.durability == QUORUM

    @property
    def append_time(self) -> bool:
        """Whether the log gives the records their time."""
        return self.message_timestamp_type == "append_time"

    @property
    def rotates(self) -> bool:
        """Whether segments are sealed, each for another leader."""
        return self.rotation_entries > 0 or self.rotation_bytes > 0

    def partition_config(self) -> PartitionConfig:
        """What it means for a leading partition."""
        return PartitionConfig(
            level=self.durability,
            unclean_takeover=self.unclean_takeover,
            roll_bytes=self.roll_bytes,
            roll_ms=self.roll_ms,
            replicas=self.replication_factor,
            min_insync=self.min_insync_replicas if self.replicated else 1,
            rotation_entries=self.rotation_entries,
            rotation_bytes=self.rotation_bytes,
        )

    def policy(self) -> CleanupPolicy:
        """Its cleanup policy."""
        return CleanupPolicy(
            delete="delete" in self.cleanup_policy,
            compact=self.compacted,
            retention_ms=None if self.retention_ms == NO_LIMIT else self.retention_ms,
            retention_bytes=None if self.retention_bytes == NO_LIMIT else self.retention_bytes,
            delete_retention_ms=self.delete_retention_ms,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            min_dirty_ratio=self.min_dirty_ratio,
        )

    def limits(self) -> RecordBatchLimits:
        """What a producer may send."""
        return RecordBatchLimits(batch_bytes_max=self.max_message_bytes)


NAMES: Final = tuple(field.name for field in fields(TopicConfig))
WITHOUT_EFFECT: Final = frozenset(
    {"compression_type", "max_compaction_lag_ms"}
    | {f"message_timestamp_{name}_max_ms" for name in ("before", "after", "difference")}
    | {name for name in NAMES if name.startswith(("remote_", "local_"))}
)


def _check_local(unit: str, local: int, retention: int) -> None:
    if retention != NO_LIMIT and local != AS_RETENTION and not 0 <= local <= retention:
        allowed = f"at most {retention}, the value of retention_{unit}, while remote_storage_enable is set"
        raise InvalidError(f"local_retention_{unit}", local, allowed)


def check_replication(config: TopicConfig) -> None:
    """Refuse a factor that the durability cannot have. Apart from the other checks: each of the two may be changed first."""
    if config.replicated:
        if config.replication_factor < REPLICAS_MIN:
            allowed = f"{REPLICAS_MIN} to {REPLICAS_MAX} at durability {QUORUM}"
            raise InvalidError("replication_factor", config.replication_factor, allowed)
        if config.min_insync_replicas > config.replication_factor:
            allowed = f"at most {config.replication_factor}, the replication factor"
            raise InvalidError("min_insync_replicas", config.min_insync_replicas, allowed)
    elif config.replication_factor != 1:
        allowed = f"1 at durability {config.durability}: several replicas are durability {QUORUM}"
        raise InvalidError("replication_factor", config.replication_factor, allowed)


def replication_changes(
    config: TopicConfig, changes: Mapping[str, object | None], *, default_factor: int
) -> dict[str, object | None]:
    """The changes, and what follows from them: a factor above 1 is quorum, quorum has a factor, and who leaves it has one replica.

    `default_factor`: of a topic that becomes quorum without one. What contradicts itself is left for `check_replication`.
    """
    after = read_config({name: value for name, value in changes.items() if value is not None})
    durability = after.durability if "durability" in changes else config.durability
    factor = after.replication_factor if "replication_factor" in changes else config.replication_factor
    if (durability == QUORUM) == (factor > 1):
        return dict(changes)
    if "replication_factor" not in changes:
        return {**changes, "replication_factor": default_factor if durability == QUORUM else None}
    if "durability" not in changes and (factor == 1 or durability == LOCAL):
        return {**changes, "durability": QUORUM if factor > 1 else None}
    return dict(changes)


def read_config(given: Mapping[str, object]) -> TopicConfig:
    """Settings from text or typed values. An unknown name or a value that does not fit is an `InvalidError`."""
    return settings_from(TopicConfig, _normalised(given))


def typed(given: Mapping[str, object]) -> dict[str, object]:
    """Only what was given, with the types it is stored with."""
    config = read_config(given)
    return {name: getattr(config, name) for name in given}


def _normalised(given: Mapping[str, object]) -> dict[str, object]:
    """Kafka's users write the two policies in either order; rotation may be on or off without a number."""
    spelt = dict(given)
    if isinstance(entries := spelt.get("rotation_entries"), str):
        spelt["rotation_entries"] = _ROTATION_WORDS.get(entries.strip().lower(), entries)
    policy = spelt.get("cleanup_policy")
    if isinstance(policy, str):
        spelt["cleanup_policy"] = ",".join(sorted({word.strip() for word in policy.split(",")}))
    return spelt
