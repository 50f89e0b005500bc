"""What an operator may tune about maintenance, and what a topic's configuration means for it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.log.model import PartitionId
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB, check_at_least, check_between

NO_PENDING_RANGES: Callable[[PartitionId], int | None] = lambda _: None  # noqa: E731 - a value


async def _nothing_to_refresh() -> None:
    """Nothing is mirrored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Values an operator may tune. Stores, objects and clocks are components, passed separately.

    `grace_ms`: how long an unlinked object stays, for readers whose plan still lists it.
    `orphan_grace_ms`: how old an unreferenced object must be before it is an orphan.
    `unproven_keep_ms`: how long an orphan stays that may have been published by a state of the store that was lost.
    `deleted_keep_ms`: how long a deleted topic is checked for records of agents that have not seen its deletion.
    `departed_keep_ms`: how long an agent must be away before what it left in the store is removed, if nothing refers to it.
    `key_map_bytes_max`: RAM for one compaction's keys; `merge_bytes_max`: up to where small neighbours become one segment.
    """

    grace_ms: int = 600_000
    orphan_grace_ms: int = 3_600_000
    unproven_keep_ms: int = 30 * 86_400_000
    deleted_keep_ms: int = 3_600_000
    departed_keep_ms: int = 30 * 86_400_000
    index_interval_ms: int = 5_000
    merge_interval_ms: int = 5_000
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
        for name in ("grace_ms", "orphan_grace_ms", "unproven_keep_ms", "deleted_keep_ms", "departed_keep_ms"):
            check_at_least(name, getattr(self, name), 0)
        for name in (
            "index_interval_ms",
            "merge_interval_ms",
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
class MaintenanceContext:
    """What maintenance works with.

    `owner`: whose the objects are; everything is written below its prefix, and deleted by it.
    `pending_from`: the first offset of a partition that a pipeline may read again; see `PendingRanges`.
    `refresh_pending`: makes `pending_from` as new as the store is now, at the cost of a scan.
    """

    store: Store
    objects: Objects
    owner: ObjectsOwner
    clock: Clock
    random: Random
    log: LogSettings
    settings: MaintenanceSettings
    pending_from: Callable[[PartitionId], int | None] = NO_PENDING_RANGES
    refresh_pending: Callable[[], Awaitable[None]] = _nothing_to_refresh

    def due_ms(self) -> int:
        """When an object that is unlinked now may be deleted."""
        return self.clock.now_ms() + self.settings.grace_ms
