"""What an operator may tune about upkeep, and what a topic's configuration means for it."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB, check_at_least, check_between

NO_PENDING_RANGES: Callable[[str, int], int | None] = lambda _topic, _number: None  # noqa: E731 - as below
NO_STEPS: Callable[[str], None] = lambda _: None  # noqa: E731 - a value, to be compared with and passed on


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Values an operator may tune. Stores, objects and clocks are components, passed separately.

    `grace_ms`: how long an unlinked object stays, for readers whose plan still names it.
    `orphan_grace_ms`: how old an object that nobody names must be before it is taken for an orphan.
    `deleted_keep_ms`: how long a deleted topic is watched for an agent that has not heard of it yet.
    `key_map_bytes_max`: RAM for one compaction's keys; `merge_bytes_max`: up to where compaction joins segments.
    """

    grace_ms: int = 600_000
    orphan_grace_ms: int = 3_600_000
    deleted_keep_ms: int = 3_600_000
    index_interval_ms: int = 5_000
    retention_interval_ms: int = 60_000
    compaction_interval_ms: int = 60_000
    trash_interval_ms: int = 60_000
    orphan_interval_ms: int = 3_600_000
    orphan_full_interval_ms: int = 7 * 86_400_000
    lease_retry_ms: int = 30_000
    jitter_share: float = 0.2
    key_map_bytes_max: int = 128 * MIB
    merge_bytes_max: int = 8 * MIB

    def __post_init__(self) -> None:
        for name in ("grace_ms", "orphan_grace_ms", "deleted_keep_ms"):
            check_at_least(name, getattr(self, name), 0)
        for name in (
            "index_interval_ms",
            "retention_interval_ms",
            "compaction_interval_ms",
            "trash_interval_ms",
            "orphan_interval_ms",
            "orphan_full_interval_ms",
            "lease_retry_ms",
            "key_map_bytes_max",
            "merge_bytes_max",
        ):
            check_at_least(name, getattr(self, name), 1)
        check_between("jitter_share", self.jitter_share, 0, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPolicy:
    """What a topic's configuration asks of upkeep. `None` is no limit.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceContext:
    """What upkeep works with. `steps` is called at labelled points, for tests that crash there.

    `begun`: the first offset of a partition (topic, number) that somebody may have to read again; see `begun.PendingRanges`.
    """

    store: Store
    objects: Objects
    clock: Clock
    random: Random
    log: LogSettings
    settings: MaintenanceSettings
    steps: Callable[[str], None] = NO_STEPS
    begun: Callable[[str, int], int | None] = NO_PENDING_RANGES

    def due_ms(self) -> int:
        """When an object that is unlinked now may be deleted."""
        return self.clock.now_ms() + self.settings.grace_ms
