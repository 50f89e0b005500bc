"""A partition that another agent leads, as the replica in this agent's WAL shows it (docs/replication.md).

The one rule: visible is what is published, and of the replica's log what lies below its high watermark: the leader's, as far as
the log is known to equal the leader's. It is shown only while the leader of the promised epoch is heard of, and no later one is
known. Where the log ends, and what was written when, is for the leader to say.

What is published is read from object storage; what is not, from the replica's entries in memory. A read sees both as of one moment:
a replica forgets entries when the leader says that they are published.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence

from holdfast.log.batches import Buffer
from holdfast.log.errors import NotLeaderError
from holdfast.log.leader_epochs import check_leader_epoch
from holdfast.log.model import PartitionId
from holdfast.log.partition.tail import TailRun
from holdfast.log.published_log import PublishedLog
from holdfast.log.replication.hosted_replica import HostedReplica
from holdfast.log.replication.positions import ReplicaEntry
from holdfast.log.replication.replica import Replica
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.segment_list import SegmentList
from holdfast.log.segments import EpochStart
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError

_NO_TIME = -1


def _base_offset(entry: ReplicaEntry) -> int:
    return entry.base_offset


class ReplicaTail:
    """Entries of a replica's log from `start` on. The list may grow behind a reader's back, and is replaced when it shrinks."""

    __slots__ = ("_entries", "start")

    def __init__(self, start: int, entries: Sequence[ReplicaEntry]) -> None:
        self.start, self._entries = start, entries

    @property
    def end(self) -> int:
        """Behind the last entry."""
        return max(self.start, self._entries[-1].position.offset) if self._entries else self.start

    def read(self, offset: int, *, below: int, bytes_max: int) -> list[Buffer]:
        """Whole batches from the one that holds `offset`, ending below `below`; at least one if there is one."""
        found: list[Buffer] = []
        size = 0
        first = max(0, bisect_right(self._entries, offset, key=_base_offset) - 1)
        for at in range(first, len(self._entries)):
            entry = self._entries[at]
            if entry.base_offset >= below:
                break
            if entry.is_epoch_start or entry.position.offset <= offset:
                continue
            # Of a leader that was this agent's own, batches may stand apart.
            data = entry.payload[0] if len(entry.payload) == 1 else b"".join(entry.payload)
            run = TailRun(entry.base_offset, entry.position.offset, data, _NO_TIME)
            part, part_bytes, whole = run.part(offset, below=below, bytes_max=bytes_max - size, one=not found)
            found += part
            size += part_bytes
            if not whole:
                break
        return found


class FollowerView:
    """The partition at one moment. A `FetchablePartition`."""

    __slots__ = ("_published", "epochs", "high_watermark", "partition_id", "segments", "start_offset", "tail")

    def __init__(self, published: PublishedLog, high_watermark: int, tail: ReplicaTail) -> None:
        self._published, self.partition_id = published, published.partition_id
        self.high_watermark, self.tail = high_watermark, tail
        self.start_offset: int = published.start_offset
        self.segments: SegmentList = published.segments
        self.epochs: Sequence[EpochStart] = published.epochs

    def check_readable(self) -> None:
        """Always: what is shown does not change."""

    async def refresh(self) -> None:
        """A segment is gone: read from the store what took its place."""
        await self._published.refresh()
        self.segments, self.start_offset = self._published.segments, self._published.start_offset

    async def wait_beyond(self, offset: int, wait_ms: float) -> bool:
        """Nothing comes: it is of one moment."""
        return False


class FollowerPartition:
    """One partition and its replica here. A `ReadProgress`.

    `leader_epoch`: the epoch of the lease, as far as this agent has heard; 0: nobody holds it.
    """

    def __init__(
        self,
        published: PublishedLog,
        hosted: HostedReplica,
        host: ReplicaHost,
        *,
        leader_epoch: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.published, self.hosted = published, hosted
        self._host, self._leader_epoch, self._clock = host, leader_epoch, clock

    @property
    def partition_id(self) -> PartitionId:
        return self.published.partition_id

    @property
    def epoch(self) -> int:
        """The epoch that the replica has promised."""
        return 0 if self.hosted.replica is None else self.hosted.replica.promised

    @property
    def high_watermark(self) -> int:
        """Everything below is visible here."""
        return max(self.published.high_watermark, self.hosted.visible.value)

    def check(self, leader_epoch: int) -> Replica:
        """The replica, if it may be read by who expects this epoch (negative: any). `NotLeaderError`, `LeaderEpochError`."""
        replica = self.hosted.replica
        if replica is None:
            raise self._not_leader("its replica here cannot be read")
        if 0 <= leader_epoch != replica.promised:
            check_leader_epoch(self.partition_id, leader_epoch, replica.promised)
        if self._leader_epoch() > replica.promised:
            raise self._not_leader("its replica here has not heard of its leader yet")
        heard_ms = self._host.leader_heard_at_ms(self.hosted)
        lag_ms = self._host.settings.lag_ms
        if heard_ms is None or self._clock.boot_ms() - heard_ms >= lag_ms:
            raise self._not_leader(f"its replica here has not heard of its leader for {lag_ms} ms")
        return replica

    def view(self, replica: Replica) -> FollowerView | None:
        """What may be read now; None: more is published than was listed, `refresh` first."""
        listed = self.published.high_watermark
        if replica.log.base.offset > listed:
            return None
        return FollowerView(self.published, self.high_watermark, ReplicaTail(listed, replica.log.entries))

    async def refreshed_view(self, leader_epoch: int) -> FollowerView:
        """What may be read now, with segments as the store lists them."""
        view = self.view(self.check(leader_epoch))
        if view is None:
            await self.published.refresh()
            view = self.view(self.check(leader_epoch))
        if view is None:
            raise UnavailableError(f"partition {self.partition_id}", "more is published than the store lists")
        return view

    def resolve_beyond(self, offset: int, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` once the high watermark is above `offset`."""
        self.hosted.visible.resolve_at(offset + 1, waiter)

    def forget(self, offset: int) -> None:
        """A waiter for `offset` has stopped waiting."""
        self.hosted.visible.forget(offset + 1)

    def read_tail(self, offset: int, *, bytes_max: int) -> list[Buffer] | None:
        """Visible batches from `offset` on; None: they are not in memory, or may not be read."""
        replica = self.hosted.replica
        view = None if replica is None else self.view(replica)
        if view is None or offset < view.tail.start:
            return None
        return view.tail.read(offset, below=view.high_watermark, bytes_max=bytes_max)

    def _not_leader(self, reason: str) -> NotLeaderError:
        return NotLeaderError(self.partition_id.topic, self.partition_id.number, reason=reason)
