"""Which partition, how it is configured, and when an append counts as done. Data only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.settings import MIB, check_at_least, check_between, check_one_of

DURABILITY_LEVELS: Final = ("local", "object")
QUORUM: Final = "quorum"
REPLICAS_MAX: Final = 3

# Kafka's acks: wait for the topic's durability level, for this leader's disk, or for nothing.
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
ACKS_NONE: Final = 0

OnDurable = Callable[[BaseException | None], None]
"""Called on the event loop once an append is durable (None), or has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionId:
    """Which partition: the topic's id and name, and the number."""

    topic: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionConfig:
    """What a topic's configuration means for one of its partitions.

    `level`: when an append counts as durable. `roll_*`: when what is durable is published. `unclean_takeover`: whether a
    partition whose last records are in another agent's WAL may continue without them. `replicas`: how many keep the tail at
    `quorum`; `min_insync`: how many of them must have an append, if that is more than a majority. `rotation_*`: how long a segment
    is sealed that leads to a change of leader; 0: never.
    """

    level: str = "local"
    unclean_takeover: bool = False
    roll_bytes: int = 8 * MIB
    roll_ms: int = 60_000
    replicas: int = 1
    min_insync: int = 1
    rotation_entries: int = 0
    rotation_bytes: int = 0

    def __post_init__(self) -> None:
        check_one_of("level", self.level, (*DURABILITY_LEVELS, QUORUM))
        check_between("replicas", self.replicas, 1, REPLICAS_MAX)
        check_at_least("min_insync", self.min_insync, 1)
        check_at_least("roll_bytes", self.roll_bytes, 1)
        check_at_least("roll_ms", self.roll_ms, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPolicy:
    """What a topic's configuration asks of maintenance. `None` is no limit.

    `delete` and `compact` are the two cleanup policies; a topic may have either or both.
    """

    delete: bool = True
    compact: bool = False
    retention_ms: int | None = 7 * 86_400_000
    retention_bytes: int | None = None
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    min_dirty_ratio: float = 0.5

    def __post_init__(self) -> None:
        for name in ("retention_ms", "retention_bytes"):
            check_at_least(name, getattr(self, name) or 0, 0)
        check_at_least("delete_retention_ms", self.delete_retention_ms, 0)
        check_at_least("min_compaction_lag_ms", self.min_compaction_lag_ms, 0)
        check_between("min_dirty_ratio", self.min_dirty_ratio, 0, 1)
