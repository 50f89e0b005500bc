"""A partition under this agent's lease: its record in the store, its reserved offsets, what is to be published, its end.

Its record is changed under `record_lock` alone, fenced by the lease (docs/safety.md, rule 7). What producers append to is
`appendable_log`, what readers see of it `visible_log`. It does not upload (`publisher`), recover (`takeover`) or read segments
(`log.reader`).
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.contracts.store import Operation, Requirement
from holdfast.kernel.lease import Lease
from holdfast.log.figures import PartitionFigures
from holdfast.log.metadata import PartitionRecord, SegmentRecord
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.appendable_log import AppendableLog
from holdfast.log.partition.offset_assignment import run_frame, wal_frame
from holdfast.log.partition.producer_footer import forget_silent, next_section
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.partition.tail import TailBatch, TailPiece, TailRun
from holdfast.log.segments import ProducerSection, ProducerSnapshot
from holdfast.log.wal import WalFrame
from holdfast.vocabulary.errors import HoldfastError, UnavailableError


class LeadingPartition(AppendableLog):
    """One partition that this agent leads. Made by `takeover.open_partition`."""

    __slots__ = (  # noqa: SIM905 - a list would fill the screen
        "__weakref__ _dirty_partitions _published_tail_cache counters publish_lock record_lock segments_published"
    ).split()

    def __init__(
        self, partition_id: PartitionId, lease: Lease, state: RecoveredPartition, resources: PartitionResources
    ) -> None:
        super().__init__(partition_id, lease, state, resources)
        self.record_lock = state.record.lock  # held by every change of the record in the store
        self.publish_lock = asyncio.Lock()  # one publication at a time
        self._dirty_partitions = resources.dirty_partitions
        self._published_tail_cache = resources.published_tail_cache
        self.counters = resources.counters
        self.segments_published = 0
        if not self.is_quiescent:
            self.mark_dirty()

    @property
    def awaits_replicas(self) -> bool:
        """Whether nothing can be published before others answer: there are none."""
        return False

    @property
    def adds_to_totals(self) -> bool:
        """Whether totals over all partitions change by its figures: of ten thousand at rest, nobody asks for more."""
        return self.tail.size_bytes > 0

    @property
    def figures(self) -> PartitionFigures:
        """What metrics show of it."""
        record = self.record
        return PartitionFigures(
            topic=self.partition_id.topic,
            number=self.partition_id.number,
            epoch=self.lease.epoch,
            start_offset=self.start_offset,
            end_offset=self.high_watermark,
            unpublished_records=self._next - record.published,
            unpublished_bytes=self.tail.size_bytes,
            oldest_unpublished_ms=self.oldest_unpublished_ms,
        )

    @property
    def is_quiescent(self) -> bool:
        """Whether there is nothing to publish and nothing to release."""
        return self.oldest_unpublished_ms is None and self.record.clean and self._next == self.record.published

    async def reserve(self, count: int = 0) -> None:
        """Reserve offsets in the store, at least `count` beyond the next one."""
        async with self.record_lock:
            await self.resolve_record()
            ceiling = self._next + max(count, self._settings.reserve_offsets)
            if ceiling > self.record.reserved:
                await self.change_record(msgspec.structs.replace(self.record, reserved=ceiling))

    async def change_record(
        self, record: PartitionRecord, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> None:
        """Write the record, fenced, together with what belongs to it. The caller holds `record_lock`.

        `UnavailableError` also when the answer to an earlier change had been lost: it is resolved now, so start over.
        """
        if self.fenced_record.in_doubt:
            await self.resolve_record()
            raise UnavailableError(
                f"partition {self.partition_id}", "the outcome of the change before was unknown, and is resolved now"
            )
        await self.fenced_record.change(record, require=require, apply=apply)
        if not record.clean:
            self.mark_dirty()
        self._visible.set(self.high_watermark)

    async def resolve_record(self) -> None:
        """Resolve a change whose answer was lost. The caller holds `record_lock`."""
        if done := await self.fenced_record.resolve():
            self.apply_published(done)
        self._visible.set(self.high_watermark)

    def next_record(self, published: int, *, closing: bool) -> PartitionRecord:
        """The record once everything below `published` is; a publication reserves or releases offsets in the same commit."""
        record = self.record
        if closing and not self._accepting and self._next == published:
            reserved = published
        elif record.reserved - self._next < self._settings.reserve_offsets // 2 and not closing:
            reserved = self._next + self._settings.reserve_offsets
        else:
            reserved = record.reserved
        return msgspec.structs.replace(record, published=published, published_epoch=self.lease.epoch, reserved=reserved)

    def apply_published(self, segments: Sequence[SegmentRecord]) -> None:
        """The segments are committed: drop what is in them from the tail and the WAL."""
        self.segments.recent.extend(segments)
        self.segments_published += len(segments)
        end_offset = segments[-1].end_offset
        if segments[-1].producers_since < 0:
            self._producers.rebase(end_offset)
        self._published_tail_cache.keep(self.tail, end_offset)
        self.oldest_unpublished_ms = self._clock.boot_ms() if self.tail.size_bytes else None
        self.publish_requested = False
        self._release_frames(end_offset)
        self._visible.set(self.high_watermark)
        self._published.notify()

    def _release_frames(self, end_offset: int) -> None:
        """Nothing below is needed from a WAL any more."""
        self._wal.release(*self.wal_key, end_offset)

    def evict_rewritten(self, end_offset: int) -> None:
        """Segments up to here were rewritten: readers must not see the tail's older copy."""
        self.tail.forget_until(min(end_offset, self.record.published))

    def change_config(self, partition_config: PartitionConfig) -> None:
        """The topic was altered: when this is due may have changed."""
        self.partition_config = partition_config
        if not self.is_quiescent:
            self.mark_dirty()

    def mark_dirty(self) -> None:
        """There is something to publish, or offsets to give back."""
        self._dirty_partitions.mark_dirty(self)

    def request_publish(self) -> None:
        """Ask for a publication without delay."""
        self.publish_requested = True
        self.mark_dirty()
        self._dirty_partitions.notify()

    def publishable(self) -> list[TailBatch]:
        """Durable batches that object storage does not have."""
        return self.tail.between(self.record.published, self._durable)

    def publishable_pieces(self, *, most: int) -> list[TailPiece]:
        """The same, cut into what becomes a segment each."""
        return self.tail.pieces(self.record.published, self._durable, self.partition_config.roll_bytes, most=most)

    async def recover_producers(self) -> None:
        """Know what its producers sent before it was opened. `UnavailableError`: object storage is away."""
        await self._recovery.finish()

    def producers_at(self, offset: int) -> tuple[ProducerSnapshot, ...]:
        """The producers that are remembered, as of `offset`."""
        return self._producers.snapshot(offset)

    def producer_section(self, offset: int) -> tuple[Callable[[], ProducerSection], int]:
        """The producers for the footer of a segment that ends at `offset`, as far as anything is durable; see `next_section`."""
        now_ms, settings = self._clock.now_ms(), self._settings
        forget_silent(
            self._producers, self.partition_id, offset, now_ms=now_ms, settings=settings, counters=self.counters
        )
        return next_section(self._producers, self.segments.recent, offset, settings)

    def stop_accepting(self) -> None:
        """Refuse appends from now on; what was accepted goes on."""
        self._accepting = False
        self._published.notify()

    def resume_accepting(self) -> None:
        """The drain was called off."""
        self._accepting = self._closed is None

    async def wait_published(self) -> None:
        """Ask for everything appended so far to be published, and return when it is, but for what the WAL fails to write."""
        end, wal_failures = self._next, self._wal_failures
        while self.record.published < end:
            self.check_readable()
            self.request_publish()
            await self._published.wait_ms(self._clock, self._settings.publish_retry_ms)
            if wal_failures != self._wal_failures:
                end = min(end, self._durable)  # what was behind it then is gone, and its offsets may be given again

    def close(self, error: HoldfastError) -> None:
        """Stop serving; everything that waits here fails with `error`."""
        self._accepting = False
        self._closed = error
        self._dirty_partitions.forget(self)
        self.tail.leave_budget()
        self._published_tail_cache.drop(self.tail)
        self._visible.fail_above(-1, error)
        self._synced.fail_above(-1, error)
        self._published.notify()

    def unpublished_frames(self) -> list[WalFrame]:
        """What is durable here and not published, for the next takeover in this process."""
        return [
            run_frame(*self.wal_key, self.lease.epoch, entry)  # a run is of our own leadership
            if isinstance(entry, TailRun)
            else wal_frame(*self.wal_key, entry.header.leader_epoch, (entry,))
            for entry in self.tail.entries(self.record.published, self._durable)
        ]
