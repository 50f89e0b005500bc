"""What the store holds of a partition. Data only; `log.keys` has its keys.

Without the garbage collector (`gc=False`): there may be a million of them, and none can be part of a cycle.
"""

import msgspec

from holdfast.log.segments.model import EpochStart


class OffsetGap(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Offsets [`start`, `end`) that an unclean takeover skipped; some of them may be in the WAL named `wal`."""

    start: int
    end: int
    wal: str


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A partition's state. Offsets below `published` are in object storage; `reserved` is the ceiling of what was handed out.

    `reserved > published` means there may be an unpublished tail, and `wal` is the id of the WAL that has it; `level` is what
    its acknowledgements meant: at `object` nothing of it was acknowledged. `epochs` is the leader history,
    oldest first: enough to tell which epoch wrote any offset from `start` on. `gaps` are what unclean takeovers left out.
    `wal_repair` is the number of the last repair of that WAL that was taken into account.

    At `quorum` (docs/replication.md): `opened_epoch` is the last epoch that served, `opened_replicas` the WAL ids of its set,
    `in_sync` those of them that keep up, and `published_epoch` that of the last entry that is published. `unclean_epoch`: the first
    since `opened_epoch` that began without replicas that were needed, and was not opened; 0: none. What was written from it on does
    not count.
    """

    published: int = 0
    reserved: int = 0
    start: int = 0
    wal: str = ""
    level: str = "local"
    epochs: tuple[EpochStart, ...] = ()
    gaps: tuple[OffsetGap, ...] = ()
    wal_repair: int = 0
    opened_epoch: int = 0
    opened_replicas: tuple[str, ...] = ()
    in_sync: tuple[str, ...] = ()
    published_epoch: int = 0
    unclean_epoch: int = 0

    @property
    def clean(self) -> bool:
        """Whether everything ever handed out is in object storage."""
        return self.reserved <= self.published


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A published segment: bytes [`start`, `end`) of an object, which several partitions may share.

    `producers_since`: its footer has only the producers that changed since this offset (`log.producer_snapshots`); -1: all of them.
    `merged_from_ms`: of the segments it was merged from, the time of the one that would have been too old first; -1: it was not.
    """

    base_offset: int
    end_offset: int
    object: str
    start: int
    end: int
    epoch: int
    records: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    compacted_at_ms: int = 0  # when its tombstones began to wait for their end; 0: never compacted
    producers_since: int = -1
    merged_from_ms: int = -1

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def oldest_ms(self) -> int:
        """From when on retention by time would have begun to let go of it, had nothing been merged; -1: unknown."""
        return self.merged_from_ms if self.merged_from_ms >= 0 else self.max_timestamp_ms


class IndexRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An index object: a list of `SegmentRecord`, oldest first."""

    base_offset: int
    end_offset: int
    object: str
    entries: int
    size_bytes: int  # of the segments listed, for retention
    dirty_bytes: int = 0  # of those among them that were never compacted


class DeletedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The mark of a deleted topic, until its partitions are purged."""

    topic: str
    deleted_at_ms: int
