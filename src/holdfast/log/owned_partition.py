"""A partition that is led here, for a service above the log that is its only writer: heaps.

The one rule: its owner encodes batches itself, appends them in the order of its calls, and answers nobody before they are durable.
Clients read such a partition like any other; what they would append is refused by the service.
"""

from collections.abc import Callable
from typing import Protocol

from holdfast.kernel.lease import Lease
from holdfast.log.batches import RecordBatch, parse_header
from holdfast.log.errors import NotLeaderError
from holdfast.log.maintenance.retention import delete_records, retention_start
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.model import ACKS_ALL, ACKS_NONE, CleanupPolicy, OnDurable, PartitionId
from holdfast.log.owned_snapshots import OwnedSnapshots
from holdfast.log.partition.appendable_log import AppendResult
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.promises_ahead import is_newest
from holdfast.log.reader import FetchedBatches, LogReader
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import UnavailableError


class OwnedPartition:
    """One leadership of a partition."""

    def __init__(self, led: LeadingPartition, reading: LogReader, context: MaintenanceContext) -> None:
        self._led, self._reading, self._context = led, reading, context
        self.snapshots = OwnedSnapshots(led, context)

    @property
    def partition_id(self) -> PartitionId:
        """Which partition."""
        return self._led.partition_id

    @property
    def epoch(self) -> int:
        """The epoch of this leadership."""
        return self._led.epoch

    @property
    def lease(self) -> Lease:
        """The lease of this leadership: what a commit requires that must not happen after it."""
        return self._led.lease

    @property
    def start_offset(self) -> int:
        """The first offset that is still kept."""
        return self._led.start_offset

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        return self._led.next_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is durable at the topic's level."""
        return self._led.high_watermark

    @property
    def append_bytes_max(self) -> int:
        """The largest batch that can be appended."""
        return self._led.append_bytes_max

    def is_current(self) -> bool:
        """Whether nobody else can lead it."""
        return self._led.is_current()

    def check_accepting(self) -> None:
        """Raise unless appends are taken. `UnavailableError`: it is moving to another agent."""
        self._led.check_readable()
        if not self._led.accepting:
            raise UnavailableError(f"partition {self.partition_id}", "it is moving to another agent")

    async def confirm(self) -> None:
        """Raise unless the store knows of no later leader. `NotLeaderError`, `UnavailableError`."""
        if not await is_newest(self._context.store, self.lease):
            raise NotLeaderError(self.partition_id.topic, self.partition_id.number, reason="a later leader took over")

    def append_now(self, batch: bytes) -> int | None:
        """Append a batch; its first offset. None: that has to wait, and nothing was appended. Raises what `append` raises."""
        appended = self._led.append_now((_whole(batch),))
        return None if appended is None else appended.base_offset

    async def append(self, batch: bytes) -> int:
        """The same, after waiting for its turn. `NotLeaderError`, `UnavailableError`: nothing was appended."""
        return (await self._led.append((_whole(batch),), acks=ACKS_NONE)).base_offset

    def notify_durable(self, end_offset: int, on_durable: OnDurable) -> None:
        """Call `on_durable` when everything below is durable at the topic's level: with None, or with why it never will be."""
        self._led.notify_durable(AppendResult(end_offset, end_offset), on_durable, acks=ACKS_ALL)

    async def read(self, offset: int, *, bytes_max: int, wait_ms: float = 0) -> FetchedBatches:
        """Whole batches from the one that holds `offset` on; see `LogReader.fetch`."""
        return await self._reading.fetch(self._led, offset, bytes_max=bytes_max, wait_ms=wait_ms)

    async def retention_start(self, policy: CleanupPolicy) -> int:
        """Where the log would start if nothing but age and size counted, and pipelines that read it."""
        return await retention_start(self._led, policy, self._context)

    async def trim(self, until: int, needed_from: Callable[[], int]) -> int:
        """Remove records below `until`, and below what is needed then; where the log starts now. Fenced, as `delete_records` is."""

        def protected() -> int:
            pending = self._context.pending_from(self.partition_id)
            return needed_from() if pending is None else min(pending, needed_from())

        target = min(until, protected(), self.high_watermark)
        if target <= self.start_offset:
            return self.start_offset
        return await delete_records(self._led, target, self._context, protect=protected)


class PartitionListener(Protocol):
    """Who is told of partitions that are opened and closed here. Called on the event loop, and must not block it."""

    def opened(self, topic: Topic, partition: OwnedPartition) -> None:
        """It is led here from now on."""
        ...

    def closed(self, partition_id: PartitionId) -> None:
        """It is not led here any more."""
        ...


def _whole(batch: bytes) -> RecordBatch:
    return RecordBatch(parse_header(batch), memoryview(batch))
