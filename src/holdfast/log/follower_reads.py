"""Reads of partitions that other agents lead, from the replicas of this agent's WAL.

They are for fetches alone: end offsets and look-ups by time are the leader's. Those that were read lately are kept, with what the
store lists of their segments.
"""

from collections.abc import Callable
from typing import Final

from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held
from holdfast.log.batches import Buffer
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import PartitionId
from holdfast.log.partition.follower_partition import FollowerPartition
from holdfast.log.partition_read import PartitionRead
from holdfast.log.published_log import PublishedLog
from holdfast.log.reader import FetchedBatches, LogReader
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.vocabulary.clock import Clock

_KEPT_MAX: Final = 1_024
_NOTHING: Final[list[Buffer]] = []


class FollowerReads:
    """The replicas of one agent, as readers see them. `leader`: who holds a partition's lease, as far as this agent has heard."""

    def __init__(
        self,
        host: ReplicaHost,
        *,
        leader: Callable[[str, int], Held | None],
        store: Store,
        reading: LogReader,
        clock: Clock,
    ) -> None:
        self._host, self._leader, self._store, self._reading, self._clock = host, leader, store, reading, clock
        self._kept: dict[PartitionId, FollowerPartition] = {}

    def read_now(
        self, partition_id: PartitionId, offset: int, *, bytes_max: int, leader_epoch: int
    ) -> PartitionRead | None:
        """What is in memory. None: nothing was read of it lately. `NotLeaderError`, `OffsetOutOfRangeError`."""
        follower = self._find(partition_id)
        if follower is None:
            return None
        view = follower.view(follower.check(leader_epoch))
        if view is None:
            return None
        if offset > view.high_watermark:
            return _nothing(follower)
        found = self._reading.fetch_now(view, offset, bytes_max=bytes_max)
        if found is None:
            start, end = view.start_offset, view.high_watermark
            return PartitionRead(_NOTHING, 0, start, end, follower.epoch, follower, in_memory=False)
        return self._answer(follower, found)

    async def read(self, partition_id: PartitionId, offset: int, *, bytes_max: int, leader_epoch: int) -> PartitionRead:
        """What is visible from `offset` on; nothing above that. `NotLeaderError`: there is no replica here that may be read."""
        follower = self._find(partition_id) or await self._open(partition_id)
        view = await follower.refreshed_view(leader_epoch)
        if offset > view.high_watermark:
            return _nothing(follower)
        return self._answer(follower, await self._reading.fetch(view, offset, bytes_max=bytes_max))

    def size_and_lag(self, partition_id: PartitionId) -> tuple[int, int] | None:
        """Unpublished bytes of this agent's replica, and how many offsets it is behind; None: there is none that can be read."""
        hosted = self._host.get((bytes.fromhex(partition_id.topic_id), partition_id.number))
        return None if hosted is None or hosted.replica is None else (hosted.size_bytes, hosted.lag)

    def _answer(self, follower: FollowerPartition, found: FetchedBatches) -> PartitionRead:
        self._host.counters.fetches += 1
        batches, start, end, size_bytes = found
        return PartitionRead(batches, size_bytes, start, end, follower.epoch, follower)

    def _find(self, partition_id: PartitionId) -> FollowerPartition | None:
        follower = self._kept.get(partition_id)
        hosted = self._host.get((bytes.fromhex(partition_id.topic_id), partition_id.number))
        return follower if follower is not None and follower.hosted is hosted else None

    async def _open(self, partition_id: PartitionId) -> FollowerPartition:
        published = await PublishedLog.open(partition_id, store=self._store, clock=self._clock)
        hosted = self._host.get((bytes.fromhex(partition_id.topic_id), partition_id.number))
        if hosted is None:
            raise NotLeaderError(partition_id.topic, partition_id.number, reason="there is no replica here")
        follower = self._find(partition_id) or FollowerPartition(  # another reader may have been faster
            published,
            hosted,
            self._host,
            leader_epoch=lambda: self._epoch_of(partition_id),
            clock=self._clock,
        )
        self._kept.pop(partition_id, None)
        self._kept[partition_id] = follower
        while len(self._kept) > _KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return follower

    def _epoch_of(self, partition_id: PartitionId) -> int:
        held = self._leader(partition_id.topic, partition_id.number)
        return 0 if held is None else held.epoch


def _nothing(follower: FollowerPartition) -> PartitionRead:
    """For a reader that is ahead of this replica: another one has shown it more."""
    start = follower.published.start_offset
    return PartitionRead(_NOTHING, 0, start, follower.high_watermark, follower.epoch, follower)
