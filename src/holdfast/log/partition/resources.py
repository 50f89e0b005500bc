"""What a leading partition is made of: what its takeover recovered, and what all partitions of a session share. Data only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.session import HeldSession
from holdfast.log.figures import TopicTraffic
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionConfig
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.fenced_record import FencedRecord
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.tail import Tail
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.promises_ahead import PromisesAhead
from holdfast.log.replication.catch_up_rate import CatchUpRate
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.replication.positions import PartitionKey
from holdfast.log.segment_list import SegmentList
from holdfast.log.settings import LeadershipCounters, LogSettings
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns
from holdfast.vocabulary.types import TopicPartition

if TYPE_CHECKING:
    from holdfast.log.partition.leading_partition import LeadingPartition
    from holdfast.log.partition.replicated_partition import ReplicatedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationResources:
    """What partitions at `quorum` need besides: how replicas are reached, and which are planned, by WAL ids, of live agents alone.

    `lag_ms`: a replica that has not reached the high watermark for so long leaves the in-sync set. `takeover_wait_ms`: a takeover
    that nobody has answered for so long fails. `drop_log`: of the own replica, if the record says that nobody counts it.
    `connect_wait_ms`: how long it waits for planned replicas that are not connected. `catch_up_rate`: what learners are sent; None:
    as fast as members. `has_learners`: whether whoever becomes a member gets the log first.
    """

    network: ReplicaNetwork
    planned_replicas: Callable[[TopicPartition], Sequence[str]]
    drop_log: Callable[[PartitionKey, PartitionRecord], object]
    lag_ms: int = 10_000
    takeover_wait_ms: int = 2_000
    connect_wait_ms: int = 300
    catch_up_rate: CatchUpRate | None = None
    has_learners: bool = True
    spent_epochs: dict[str, int] = field(default_factory=dict)  # by resource: nothing may be replicated under it again
    promises: PromisesAhead = field(default_factory=PromisesAhead)
    unannounced: "dict[ReplicatedPartition, None]" = field(
        default_factory=dict
    )  # whose members know an older watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResources:
    """Shared by the partitions of one session of an agent. `budget` None: their tails are not bounded together."""

    session: HeldSession
    store: Store
    objects: Objects
    wal: Wal
    wal_id: str
    clock: Clock
    random: Random
    settings: LogSettings
    dirty_partitions: "DirtyPartitions[LeadingPartition]" = field(default_factory=DirtyPartitions)
    published_tail_cache: PublishedTailCache = field(default_factory=lambda: PublishedTailCache(0))
    budget: TailBudget | None = None
    counters: LeadershipCounters = field(default_factory=LeadershipCounters)
    traffic: TopicTraffic = field(default_factory=TopicTraffic)
    replication: ReplicationResources | None = None  # None: nothing is replicated here
    turns: LoopTurns = field(default_factory=LoopTurns)  # of partitions that are opened, many at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredPartition:
    """What a takeover has recovered of one partition."""

    record: FencedRecord
    segments: SegmentList
    tail: Tail
    config: PartitionConfig
