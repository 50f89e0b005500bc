"""A partition under this agent's lease: append, read the tail, know what is durable, and say what is to be published.

Rules it keeps (SAFETY 7–9):
- Offsets are handed out only below the ceiling reserved in the store, and never twice.
- Nothing is visible before it is durable at the topic's level: `high_watermark` moves after fdatasync (`local`) or after the fenced
  commit that names the object (`object`), and reads stop there.
- Before an acknowledgement the session is looked at again: an owner that slept does not answer for what may be somebody else's.

It does no uploading (`publishing`), no recovering (`opening`) and no reading of segments (`log.reading`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.store import Operation, Requirement
from holdfast.kernel.lease import Lease
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import Batch, BatchHeader, Buffer
from holdfast.log.partition.afterglow import Afterglow
from holdfast.log.partition.attention import Attention
from holdfast.log.partition.budget import TailBudget
from holdfast.log.partition.crowding import Crowding
from holdfast.log.partition.numbering import extent, numbered, wal_frame
from holdfast.log.partition.producers import ProducerRefusedError, Producers
from holdfast.log.partition.record_keeper import RecordKeeper
from holdfast.log.partition.records import PartitionRecord, SegmentRecord
from holdfast.log.partition.segments import Segments
from holdfast.log.partition.tail import Tail, TailBatch
from holdfast.log.partition.terms import Place, Terms
from holdfast.log.partition.watermark import Told, Watermark
from holdfast.log.segments import EpochStart, ProducerSnapshot
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal, WalFrame
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.tasks import Bell

ALL: Final = -1
LEADER: Final = 1
NONE: Final = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a producer's batches went. `duplicate`: all were there already, and were not appended again."""

    base_offset: int
    end_offset: int
    duplicate: bool = False


class LeadingPartition:
    """One partition that this agent leads. Made by `opening.open_partition`."""

    def __init__(
        self,
        place: Place,
        *,
        lease: Lease,
        session: HeldSession,
        wal: Wal,
        clock: Clock,
        settings: LogSettings,
        terms: Terms,
        keeper: RecordKeeper,
        segments: Segments,
        producers: Producers,
        tail: Tail,
        attention: "Attention[LeadingPartition]",
        afterglow: Afterglow,
        budget: TailBudget | None = None,
    ) -> None:
        self.place, self.lease, self.segments, self.tail = place, lease, segments, tail
        self.level = keeper.record.level  # until it is opened again: what was visible must not become invisible
        self.terms = terms
        self.keeper = keeper
        self.record_lock = keeper.lock  # whoever changes the record in the store holds it
        self.publish_lock = asyncio.Lock()  # one publication at a time
        self._session, self._wal, self._clock, self._settings = session, wal, clock, settings
        self._producers = producers
        self._order = asyncio.Lock()  # first come, first numbered
        self._queued = 0  # appends that wait for their turn
        self._next = self._durable = max(tail.end, keeper.record.published)
        self._visible, self._synced = Watermark(self.high_watermark), Watermark(self._durable)
        self._burst = 0  # failures of the WAL so far
        self._topic_bytes = bytes.fromhex(place.topic_id)
        self._accepting = True
        self._closed: HoldfastError | None = None
        self._published = Bell()
        self._settled = Bell()
        if budget is not None:
            tail.join_budget(budget)
        self._attention, self._afterglow = attention, afterglow
        self._crowding = Crowding(
            place,
            tail,
            published=self._published,
            demand=self.demand,
            attention=attention,
            budget=budget,
            settings=settings,
            clock=clock,
        )
        self.demanded = False  # somebody waits for this partition to be published
        self.segments_published = 0
        self.oldest_unpublished_ms: int | None = clock.boot_ms() if tail.size_bytes else None
        self.appended_at_ms = clock.boot_ms()
        if not self.at_rest:
            attention.stir(self)

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to publish and nothing to give back."""
        return self.oldest_unpublished_ms is None and self.record.clean and self._next == self.record.published

    @property
    def record(self) -> PartitionRecord:
        """The partition's record, as the store holds it."""
        return self.keeper.record

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        return self._next

    @property
    def high_watermark(self) -> int:
        """Everything below is durable at the topic's level, and visible."""
        return self._durable if self.level == "local" else self.record.published

    @property
    def start_offset(self) -> int:
        """The first offset that is still kept."""
        return self.record.start

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """The leader history."""
        return self.record.epochs

    @property
    def unpublished_bytes(self) -> int:
        """What object storage has not taken yet."""
        return self.tail.size_bytes

    @property
    def accepting(self) -> bool:
        """Whether appends are taken."""
        return self._accepting

    async def append(self, batches: Sequence[Batch], *, acks: int = ALL) -> Appended:
        """Number, log and acknowledge batches, all or none; those that were seen before keep their first offsets.

        `acks`: `ALL` returns once they are durable at the topic's level, `LEADER` once they are on this disk, `NONE` at once.

        `ProducerRefusedError`: they do not follow what their producer sent. `UnavailableError`: nothing was appended, try again.
        `ExpiredError`, `FencedError`, `ClosedError`: somebody else leads, or may; what became of the batches is not known here.
        """
        count, size = extent(batches)
        self._queued += 1
        try:
            async with self._order:
                await self._until_ready(count, size)
                appended = self._number(batches)
        except ProducerRefusedError:
            raise
        except BaseException:
            self.missed(header for header, _ in batches)
            raise
        finally:
            self._queued -= 1
        await self.acknowledged(appended, acks=acks)
        return appended

    def append_now(self, batches: Sequence[Batch]) -> Appended | None:
        """`append` up to where it would wait: None if there is no room yet or somebody came first, and nothing was appended.

        Nothing is durable before `acknowledged` returns. Raises what `append` raises.
        """
        count, size = extent(batches)
        if (
            self._queued
            or self._order.locked()
            or self._next + count > self.keeper.record.reserved
            or not self._wal.has_room(size)
            or self._crowding
        ):
            return None
        try:
            self._check_accepting()
        except HoldfastError:
            self.missed(header for header, _ in batches)
            raise
        return self._number(batches)

    def missed(self, headers: Iterable[BatchHeader], at_ms: int | None = None) -> None:
        """These batches came (now, or at `at_ms`) and were not appended: what their producers send next must not overtake them."""
        at_ms = self._clock.now_ms() if at_ms is None else at_ms
        for header in headers:
            self._producers.missed(header, at_ms)

    async def acknowledged(self, appended: Appended, *, acks: int = ALL) -> None:
        """Return when what was appended is as durable as `acks` asks for. Raises what `append` raises."""
        if acks != NONE:
            await (self._visible if acks == ALL else self._synced).reaches(appended.end_offset)
            self._session.check()

    def tell(self, appended: Appended, told: Told, *, acks: int = ALL) -> None:
        """Call `told` when what was appended is as durable as `acks` asks for: with None, or with what `append` raises."""
        if acks == NONE:
            told(None)
        else:
            mark = self._visible if acks == ALL else self._synced
            mark.call(appended.end_offset, lambda error: told(error or self._session.doubt()))

    async def _until_ready(self, count: int, size: int) -> None:
        """Wait for room in RAM, for offsets, and for room in the WAL, until all hold at once."""
        while True:
            if self._crowding:
                await self._crowding.over(self._check_accepting)
            if self._next + count > self.keeper.record.reserved:
                self._check_accepting()
                await self.reserve(count)
                continue
            await self._wal.room(size)
            self._check_accepting()
            if self._next + count <= self.keeper.record.reserved:
                return

    def _number(self, batches: Sequence[Batch]) -> Appended:
        """Judge, assign offsets, hand to the WAL and put on the tail: no await, so nothing comes in between."""
        base = self._next
        try:
            fresh, appended = self._judge(batches)
            if fresh:
                self._log(fresh)
        except BaseException:
            self._producers.forget_from(base)
            raise
        return appended

    def _judge(self, batches: Sequence[Batch]) -> tuple[list[Batch], Appended]:
        """Which of the batches are new, and where all of them are (going to be)."""
        fresh: list[Batch] = []
        offsets: list[tuple[int, int]] = []
        at, now_ms = self._next, self._clock.now_ms()
        for batch in batches:
            count = batch.header.last_offset_delta + 1
            offset = self._producers.judge(batch.header, now_ms)
            if offset is None:
                offset = at
                self._producers.append(batch.header, offset, now_ms)
                fresh.append(batch)
                at += count
            offsets.append((offset, offset + count))
        return fresh, Appended(offsets[0][0], max(end for _, end in offsets), not fresh)

    def _log(self, batches: Sequence[Batch]) -> None:
        base, epoch = self._next, self.lease.epoch
        made = numbered(batches, base, epoch, copy_below_bytes=self._settings.copy_below_bytes)
        at = made[-1].end_offset
        frame = wal_frame(self._topic_bytes, self.place.number, epoch, made)
        burst = self._burst
        # Told by the WAL, not in the caller's coroutine: a producer that hangs up must not hold back what it wrote.
        self._wal.append_telling(frame, lambda _, error: self._written(error, base, at, burst))
        for batch in made:
            self.tail.append(batch)
        self._next = at
        self.appended_at_ms = self._clock.boot_ms()
        if self.oldest_unpublished_ms is None:
            self.oldest_unpublished_ms = self.appended_at_ms
            self._attention.stir(self)

    def _written(self, error: HoldfastError | None, base: int, end: int, burst: int) -> None:
        if burst != self._burst:
            return  # an earlier frame failed and took this one's offsets back with it; recovery skips it too
        if error is None:
            self._durable = end
            self._producers.settle(end)
            self._visible.set(self.high_watermark)
            self._synced.set(end)
            if self.tail.size_bytes >= self.terms.roll_bytes and not self.demanded:
                self.demand()  # once until it is published: this is the hot path
        else:
            self._burst += 1
            lost = [batch.header for batch in self.tail.between(base, self._next)]
            self._producers.forget_from(base)
            self.missed(lost)
            self.tail.cut_from(base)
            self._next = base
            self._visible.fail_above(base, error)
            self._synced.fail_above(base, error)
        self._settled.ring()

    async def reserve(self, count: int = 0) -> None:
        """Book offsets in the store, at least `count` beyond the next one."""
        async with self.record_lock:
            await self.settle_record()
            ceiling = self._next + max(count, self._settings.reserve_offsets)
            if ceiling > self.record.reserved:
                await self.change_record(msgspec.structs.replace(self.record, reserved=ceiling))

    async def change_record(
        self, record: PartitionRecord, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> None:
        """Write the record, fenced, together with what belongs to it. The caller holds `record_lock`.

        `UnavailableError` also when the answer to an earlier change had been lost: it is known now, so begin again.
        """
        if self.keeper.in_doubt:
            await self.settle_record()
            raise UnavailableError(
                f"partition {self.place}", "the answer to the change before was lost; it is known now"
            )
        await self.keeper.change(record, require=require, apply=apply)
        if not record.clean:
            self._attention.stir(self)
        self._visible.set(self.high_watermark)

    async def settle_record(self) -> None:
        """Find out what became of a change whose answer was lost. The caller holds `record_lock`."""
        if done := await self.keeper.settle():
            self.was_published(done)
        self._visible.set(self.high_watermark)

    def record_after(self, published: int, *, closing: bool) -> PartitionRecord:
        """The record once everything below `published` is; a publication books offsets ahead, or gives them back, for free."""
        record = self.record
        if closing and not self._accepting and self._next == published:
            reserved = published
        elif record.reserved - self._next < self._settings.reserve_offsets // 2 and not closing:
            reserved = self._next + self._settings.reserve_offsets
        else:
            reserved = record.reserved
        return msgspec.structs.replace(record, published=published, reserved=reserved)

    def was_published(self, segments: Sequence[SegmentRecord]) -> None:
        """The store names the segments: forget here what is in them."""
        self.segments.recent.extend(segments)
        self.segments_published += len(segments)
        end_offset = segments[-1].end_offset
        self._afterglow.keep(self.tail, end_offset)
        self.oldest_unpublished_ms = self._clock.boot_ms() if self.tail.size_bytes else None
        self.demanded = False
        self._wal.release(self._topic_bytes, self.place.number, end_offset)
        self._visible.set(self.high_watermark)
        self._published.ring()

    def was_rewritten(self, end_offset: int) -> None:
        """Object storage holds something else than was published, up to here: that is what readers are to see."""
        self.tail.forget_until(min(end_offset, self.record.published))

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        """No append is numbered during the body."""
        async with self._order:
            yield

    def demand(self) -> None:
        """Have it published as soon as can be."""
        self.demanded = True
        self._attention.stir(self)
        self._attention.ring()

    def check_readable(self) -> None:
        """Raise unless this partition may still be answered for."""
        if self._closed is not None:
            raise self._closed
        self._session.check()

    def read_tail(self, offset: int, *, bytes_max: int) -> list[Buffer] | None:
        """Visible batches from `offset` on; None: it is no longer in the tail, read segments."""
        if offset < self.tail.start:
            return None
        return self.tail.read(offset, below=self.high_watermark, bytes_max=bytes_max)

    def tell_beyond(self, offset: int, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` (which may wait for others, too) once the high watermark is above `offset`, or fail it."""
        self._visible.tell(offset + 1, waiter)

    def forget(self, offset: int) -> None:
        """Somebody who was to be told about `offset` no longer waits."""
        self._visible.forget(offset + 1)

    async def wait_beyond(self, offset: int, wait_ms: float) -> bool:
        """Wait until the high watermark is above `offset`, at most `wait_ms`."""
        self.check_readable()
        return await self._visible.reaches_within(offset + 1, self._clock, wait_ms)

    async def refresh(self) -> None:
        """A leader's list of segments is the newest there is."""

    def publishable(self) -> list[TailBatch]:
        """Durable batches that object storage does not have."""
        return self.tail.between(self.record.published, self._durable)

    def producers_at(self, offset: int) -> tuple[ProducerSnapshot, ...]:
        """The producers for the footer of a segment that ends at `offset`, as far as anything is durable."""
        settings = self._settings
        self._producers.expire(
            self._clock.now_ms(), expiry_ms=settings.producer_expiry_ms, count_max=settings.producers_max
        )
        return self._producers.snapshot(offset)

    def stop_accepting(self) -> None:
        """Refuse appends from now on; what was accepted goes on."""
        self._accepting = False
        self._published.ring()

    def accept_again(self) -> None:
        """A drain came to nothing."""
        self._accepting = self._closed is None

    async def until_published(self) -> None:
        """Have everything appended so far published, and return when it is."""
        end = self._next
        while self.record.published < end:
            self.check_readable()
            self.demand()
            await self._published.wait_ms(self._clock, self._settings.publish_retry_ms)

    async def until_durable(self) -> None:
        """Return when everything numbered so far is durable, or has failed."""
        while self._durable < self._next:
            await self._settled.wait()

    def close(self, error: HoldfastError) -> None:
        """Stop; everybody who waits here hears `error`."""
        self._accepting = False
        self._closed = error
        self._attention.forget(self)
        self.tail.leave_budget()
        self._afterglow.drop(self.tail)
        self._visible.fail_above(-1, error)
        self._synced.fail_above(-1, error)
        self._published.ring()

    def left_behind(self) -> list[WalFrame]:
        """What is durable here and not published, for whoever opens the partition next in this process."""
        return [
            wal_frame(self._topic_bytes, self.place.number, batch.header.leader_epoch, (batch,))
            for batch in self.publishable()
        ]

    def _check_accepting(self) -> None:
        if self._closed is not None:
            raise self._closed
        if not self._accepting:
            raise UnavailableError(f"partition {self.place}", "it is moving to another agent")
        self._session.check()
