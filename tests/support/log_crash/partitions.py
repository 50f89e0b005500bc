"""The partitions of one life, put together from the parts of the log so that each part can be told where to die."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tests.support.log_crash.clients import AGAIN
from tests.support.log_crash.kill_points import Steps
from tests.support.log_crash.workload import TERMS, resource_of

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.lease import Held, acquire, release
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.log.errors import TailNotLocalError
from holdfast.log.model import PartitionId
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publisher import SegmentPublisher, release_reservation
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.takeover import open_partition
from holdfast.log.reader import FetchedBatches, LogReader
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, FencedError
from holdfast.vocabulary.random import Random

T = TypeVar("T")

PUBLISH_TICK_MS: Final = 15


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a life has."""

    agent: str
    say: Callable[[str], None]
    steps: Steps
    store: Store
    objects: Objects
    wal: Wal
    wal_id: str
    session: HeldSession
    publisher: SegmentPublisher
    reading: LogReader
    clock: Clock
    random: Random
    settings: LogSettings
    dirty_partitions: DirtyPartitions[LeadingPartition]


class LedPartitions:
    """What one life leads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._partitions: dict[int, LeadingPartition] = {}

    @property
    def numbers(self) -> Sequence[int]:
        return list(self._partitions)

    def partitions(self) -> Sequence[LeadingPartition]:
        """All of them."""
        return list(self._partitions.values())

    async def append(self, number: int, payload: bytes) -> tuple[int, int]:
        appended = await self._partitions[number].append(split_batches(payload, limits=RecordBatchLimits()))
        return appended.base_offset, appended.end_offset

    async def fetch(self, number: int, offset: int, *, wait_ms: float) -> FetchedBatches:
        return await self._parts.reading.fetch(self._partitions[number], offset, bytes_max=8_192, wait_ms=wait_ms)

    async def take(self, places: Sequence[PartitionId]) -> None:
        """Lead every partition that can be had; those whose tail is elsewhere stay offline."""
        for partition_id in places:
            try:
                led = await self._until_done(lambda partition_id=partition_id: self._open(partition_id))  # type: ignore[misc]
            except TailNotLocalError:
                self._say("offline", partition_id.number)
                continue
            self._partitions[partition_id.number] = led
            self._say("opened", partition_id.number, led.lease.epoch, led.next_offset, led.high_watermark)

    async def _open(self, partition_id: PartitionId) -> LeadingPartition:
        parts, resource = self._parts, resource_of(partition_id)
        while True:
            lease = await acquire(
                parts.store,
                resource,
                holder=parts.agent,
                session=parts.session.id,
                clock=parts.clock,
                random=parts.random,
            )
            if not isinstance(lease, Held):
                break
            await parts.clock.sleep_ms(20)
        parts.steps("lease acquired")
        resources = PartitionResources(
            session=parts.session,
            store=parts.store,
            objects=parts.objects,
            wal=parts.wal,
            wal_id=parts.wal_id,
            clock=parts.clock,
            random=parts.random,
            settings=parts.settings,
            dirty_partitions=parts.dirty_partitions,
        )
        return await open_partition(partition_id, lease, resources, config=TERMS[partition_id.number])

    async def publish_when_due(self) -> None:
        """Roll and publish, until cancelled."""
        parts = self._parts
        while True:
            await parts.dirty_partitions.wait_ms(parts.clock, PUBLISH_TICK_MS)
            due = [each for each in self.partitions() if each.accepting and self._due(each)]
            if not due:
                continue
            try:
                lost = await parts.publisher.publish(due)
            except AGAIN:
                await parts.clock.sleep_ms(20)
                continue
            for each in lost:
                self._say("lost", each.partition_id.number)
                each.close(FencedError(each.lease.resource, each.lease.epoch, each.lease.epoch + 1))

    def _due(self, partition: LeadingPartition) -> bool:
        since_ms, partition_config = partition.oldest_unpublished_ms, partition.partition_config
        old = since_ms is not None and self._parts.clock.boot_ms() - since_ms >= partition_config.roll_ms
        return partition.publish_requested or old or partition.unpublished_bytes >= partition_config.roll_bytes

    async def give_back(self) -> None:
        """Publish everything and give reserved offsets back: each partition could move at once."""
        for partition in self.partitions():
            while not partition.record.clean:
                await self._until_done(lambda: self._parts.publisher.publish(self.partitions()))
                await self._until_done(lambda partition=partition: release_reservation(partition))  # type: ignore[misc]

    async def wait_published(self) -> None:
        """Return when object storage has everything."""
        while any(each.unpublished_bytes for each in self.partitions()):
            await self._parts.clock.sleep_ms(20)

    async def hand_back(self) -> None:
        """Graceful shutdown."""
        parts = self._parts
        parts.steps("closing")
        for each in self.partitions():
            each.stop_accepting()
            await each.wait_durable()
        parts.steps("drained")
        lost = await self._until_done(lambda: parts.publisher.publish(self.partitions(), closing=True))
        parts.steps("published to the end")
        for each in self.partitions():
            if each not in lost:
                await release(parts.store, each.lease, clock=parts.clock, random=parts.random)
                parts.steps("lease released")
                self._say("closed", each.partition_id.number)
            each.close(ClosedError("partition"))

    async def _until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except AGAIN:
                await self._parts.clock.sleep_ms(20)

    def _say(self, kind: str, number: int, *words: object) -> None:
        self._parts.say(" ".join(map(str, (kind, self._parts.agent, number, *words))))
