"""What an operator may tune about the log of one agent, and what leading partitions counts. Per-topic settings are in `topics`."""

from dataclasses import dataclass
from typing import Final

from holdfast.log.batches.limits import RecordBatchLimits
from holdfast.log.topic_config import GROWABLE_COUNT, PARTITION_COUNTS
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between, check_one_of

CHECKS: Final = ("records", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Rules for all topics of a server. `partitions`: `growable`, or `fixed` if no topic may get more partitions than it has."""

    partitions: str = GROWABLE_COUNT

    def __post_init__(self) -> None:
        check_one_of("partitions", self.partitions, PARTITION_COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Values an operator may tune. Stores, objects, WALs and clocks are components, passed separately.

    `reserve_offsets`: how many offsets a leader reserves in the store at a time (docs/safety.md, rule 8).
    `unpublished_bytes_max`: limit of unpublished bytes of a partition; beyond it producers wait.
    `copy_below_bytes`: smaller tail batches are copied out of the slab they arrived in, so that they do not pin it.
    `producer_expiry_ms`: how long an idempotent producer may be silent before it is forgotten; `producers_max`: of a partition,
    beyond which the most silent one is. `producer_deltas_max`: so many segments after one with all producers another has all of
    them, a quarter of `segment_keys_max` at most; `producer_delta_min`: with fewer producers every publication has all of them.
    `check_batches`: `records` checks every record that is produced as far as a consumer has to read it, which decompresses;
    `headers` checks the headers and checksums of batches. `inflated_bytes_max`: how large a batch may be once decompressed, if the
    topic allows no larger ones; `check_threads`: how many are decompressed at once.
    `segment_reads_max`: concurrent reads of segments, without those that have taken longer than `segment_read_slow_ms`: they may
    never answer. `segment_readers_max`: whose indexes are kept in RAM.
    `reads_ahead_max`: reads ahead of sequential readers, of all partitions; `reads_ahead_depth`: of one partition;
    `read_ahead_bytes`: of one such read.
    `fetch_enough_bytes`: a fetch that has so much does not continue to another segment, even if it may return more.
    """

    reserve_offsets: int = 1_000_000
    unpublished_bytes_max: int = 64 * MIB
    room_wait_ms: int = 10_000
    copy_below_bytes: int = 64 * KIB
    segment_keys_max: int = 64
    index_entries_max: int = 4_096
    shared_below_bytes: int = 1 * MIB
    publish_tick_ms: int = 100
    publish_retry_ms: int = 500
    object_interval_ms: int = 250
    producer_expiry_ms: int = 86_400_000
    producers_max: int = 100_000
    producer_deltas_max: int = 16
    producer_delta_min: int = 256
    check_batches: str = "records"
    inflated_bytes_max: int = 32 * MIB
    check_threads: int = 2
    segment_reads_max: int = 64
    segment_read_slow_ms: int = 1_000
    segment_readers_max: int = 1_024
    reads_ahead_max: int = 16
    reads_ahead_depth: int = 2
    read_ahead_bytes: int = 9 * MIB
    fetch_enough_bytes: int = 1 * MIB

    def __post_init__(self) -> None:
        check_between("reserve_offsets", self.reserve_offsets, 1, 1 << 40)
        check_at_least("unpublished_bytes_max", self.unpublished_bytes_max, KIB)
        check_at_least("room_wait_ms", self.room_wait_ms, 0)
        check_at_least("copy_below_bytes", self.copy_below_bytes, 0)
        check_at_least("segment_keys_max", self.segment_keys_max, 4)
        check_one_of("check_batches", self.check_batches, CHECKS)
        check_between("inflated_bytes_max", self.inflated_bytes_max, MIB, RecordBatchLimits().inflated_bytes_max)
        check_at_least("producer_deltas_max", self.producer_deltas_max, 0)
        check_at_least("producer_delta_min", self.producer_delta_min, 1)
        check_at_least("index_entries_max", self.index_entries_max, 16)
        check_at_least("shared_below_bytes", self.shared_below_bytes, 0)
        check_at_least("reads_ahead_max", self.reads_ahead_max, 0)
        check_at_least("reads_ahead_depth", self.reads_ahead_depth, 0)
        for name in (
            "publish_tick_ms",
            "publish_retry_ms",
            "object_interval_ms",
            "producer_expiry_ms",
            "producers_max",
            "check_threads",
            "segment_reads_max",
            "segment_read_slow_ms",
            "segment_readers_max",
            "fetch_enough_bytes",
            "read_ahead_bytes",
        ):
            check_at_least(name, getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipSettings:
    """How an agent serves the partitions it leads.

    `open_retry_ms`: between attempts to open a partition that is offline. `idle_ms`: how long a partition must have been idle
    before its reserved offsets are released, so that it can move at once. `publications_max`: concurrent publications.
    `publish_slow_ms`: a publication that takes longer is logged.
    `tail_bytes_max`: limit of unpublished bytes of all partitions; from half of it on the largest are published.
    `afterglow_bytes_max`: how much published data stays in memory for readers close behind.
    `together_bytes_max`, `together_partitions_max`: how much one publication takes.
    `drain_publish_ms`: how long a partition that moves may take to be published while it accepts appends; `drain_refuse_ms`: how
    long it refuses them at most, while what came last is published.
    `wal_bytes_max`: beyond it, the partitions that keep the oldest WAL file from being recycled are published first.
    `rotation_check_ms`: how often partitions that rotate are looked at.
    """

    open_retry_ms: int = 5_000
    idle_ms: int = 30_000
    publications_max: int = 4
    publish_backoff_max_ms: int = 30_000
    publish_slow_ms: int = 5_000
    tail_bytes_max: int = 256 * MIB
    afterglow_bytes_max: int = 128 * MIB
    together_bytes_max: int = 64 * MIB
    together_partitions_max: int = 250
    drain_publish_ms: int = 20_000
    drain_refuse_ms: int = 3_000
    wal_bytes_max: int = 1024 * MIB
    rotation_check_ms: int = 100

    def __post_init__(self) -> None:
        for name in (
            "open_retry_ms",
            "idle_ms",
            "publications_max",
            "publish_backoff_max_ms",
            "publish_slow_ms",
            "tail_bytes_max",
            "together_bytes_max",
            "together_partitions_max",
            "drain_publish_ms",
            "drain_refuse_ms",
            "wal_bytes_max",
            "rotation_check_ms",
        ):
            check_at_least(name, getattr(self, name), 1)
        check_at_least("afterglow_bytes_max", self.afterglow_bytes_max, 0)


@dataclass(slots=True)
class LeadershipCounters:
    """Since the process started. The field names are metric names."""

    opened: int = 0
    open_failures: int = 0
    drained: int = 0
    closed: int = 0
    publications: int = 0
    segments_published: int = 0
    bytes_published: int = 0
    publish_failures: int = 0
    lost_while_publishing: int = 0
    bookings_returned: int = 0
    producers_expired: int = 0
    producers_evicted: int = 0
