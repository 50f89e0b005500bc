"""The append side of a partition under this agent's lease: numbering, deduplication, the way through the WAL, what is durable.

Its rules (docs/safety.md, rules 7–9):
- Offsets are handed out only below the ceiling reserved in the store, and never twice; while the answer to a change is lost, below
  the lower of the two that may be.
- Nothing is visible before it is durable at the topic's level: `high_watermark` moves after fdatasync (`local`) or after the fenced
  commit that names the object (`object`), and reads stop there.
- Before an acknowledgement the session is checked again: an agent that was suspended does not acknowledge for a newer leader.

It neither reserves offsets nor publishes: `LeadingPartition` does.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from holdfast.kernel.lease import Lease
from holdfast.log.batches import BatchHeader, RecordBatch
from holdfast.log.batches.batch_run import BatchRun
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import ACKS_ALL, ACKS_NONE, OnDurable, PartitionId
from holdfast.log.partition.append_place import AppendOrder, AppendPlace
from holdfast.log.partition.backpressure import Backpressure
from holdfast.log.partition.offset_assignment import assign_offsets, assign_run, extent, run_frame, wal_frame
from holdfast.log.partition.producer_recovery import ProducerRecovery
from holdfast.log.partition.producer_state import ProducerStates
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.partition.tail import TailEntry
from holdfast.log.partition.visible_log import VisibleLog
from holdfast.log.partition.watermark import Watermark
from holdfast.log.wal import WalFrame
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    UnavailableError,
)
from holdfast.vocabulary.tasks import Notify


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a producer's batches went; `offsets`: the base of each of several.

    `duplicate`: all were there already, and were not appended again.
    """

    base_offset: int
    end_offset: int
    duplicate: bool = False
    offsets: list[int] = field(default_factory=list)


class AppendableLog(VisibleLog, ABC):
    """What producers append to. A base class, not a part: its state is what the partition's other duties are about."""

    __slots__ = (  # noqa: SIM905 - a list would fill the screen
        "_accepting _backpressure _next _order _producers _published _queued _recovery _settings _settled _synced _traffic _wal "
        "_wal_failures appended_at_ms oldest_unpublished_ms partition_config publish_requested wal_key"
    ).split()

    def __init__(
        self, partition_id: PartitionId, lease: Lease, state: RecoveredPartition, resources: PartitionResources
    ) -> None:
        super().__init__(partition_id, lease, state, resources)
        self.partition_config = state.config
        self._wal = resources.wal
        self._traffic = resources.traffic[partition_id.topic]
        self._settings = resources.settings
        self._producers = ProducerStates(count_max=resources.settings.producers_max)
        self._recovery = ProducerRecovery(
            self._producers, state.segments, state.tail, objects=resources.objects, clock=resources.clock
        )
        self._order = AppendOrder()  # first come, first numbered
        self._queued = 0  # appends that wait for their turn
        self._next = self._durable
        self._synced = Watermark(self._durable)
        self._wal_failures = 0
        self.wal_key = (bytes.fromhex(partition_id.topic_id), partition_id.number)
        self._accepting = True
        self._published = Notify()
        self._settled = Notify()
        if resources.budget is not None:
            state.tail.join_budget(resources.budget)
        self._backpressure = Backpressure(
            partition_id, state.tail, resources, published=self._published, request_publish=self.request_publish
        )
        self.publish_requested = False  # publish without waiting for size or age
        self.appended_at_ms = self._clock.boot_ms()
        self.oldest_unpublished_ms: int | None = self.appended_at_ms if state.tail.size_bytes else None

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        return self._next

    @property
    def unpublished_bytes(self) -> int:
        """What object storage has not taken yet."""
        return self.tail.size_bytes

    @property
    def publish_bytes(self) -> int:
        """So much is published without delay: before producers would have to wait for it, however large segments may be."""
        return min(self.partition_config.roll_bytes, self._settings.unpublished_bytes_max // 2)

    @property
    def append_bytes_max(self) -> int:
        """The largest append the WAL takes."""
        return self._wal.replicated_bytes_max

    @property
    def accepting(self) -> bool:
        """Whether appends are taken."""
        return self._accepting

    async def append(
        self,
        batches: Sequence[RecordBatch],
        *,
        acks: int = ACKS_ALL,
        checked: "asyncio.Future[None] | None" = None,
    ) -> AppendResult:
        """Number, log and acknowledge batches, all or none; those that were seen before keep their first offsets.

        `checked`: whether they may be appended at all is not decided yet, and they wait for it in their place.

        `acks`: `ALL` returns once they are durable at the topic's level, `LEADER` once they are on this disk, `NONE` at once.

        `ProducerRefusedError`: they do not follow what their producer sent. `UnavailableError`, `NotLeaderError`: nothing was
        appended, try again. `ExpiredError`, `FencedError`, `ClosedError`: another agent leads, or may; the outcome is unknown.
        """
        count, size = extent(batches)
        self._queued += 1
        try:
            headers = [header for header, _ in batches]
            async with self._recovery.before_append(headers, self._settings.room_wait_ms), self._order:
                if checked is not None:
                    await checked
                await self._until_ready(count, size)
                appended = self._append_in_order(batches)
        except InvalidError:
            raise
        except BaseException as error:
            self.record_missed(header for header, _ in batches)
            if isinstance(error, (FencedError, ExpiredError, ClosedError)):
                raise self._not_appended(error) from error
            raise
        finally:
            self._queued -= 1
        await self.acknowledged(appended, acks=acks)
        return appended

    def append_now(self, batches: Sequence[RecordBatch], *, copy_below_bytes: int | None = None) -> AppendResult | None:
        """`append` without waiting: None if it would have to wait, and nothing was appended.

        Nothing is durable before `acknowledged` returns. Raises what `append` raises.
        """
        if self._must_wait(*extent(batches)) or not (
            self._recovery.finish_now() or all(header.producer_id < 0 for header, _ in batches)
        ):
            return None
        try:
            self._check_accepting()
        except HoldfastError:
            self.record_missed(header for header, _ in batches)
            raise
        return self._append_in_order(batches, copy_below_bytes)

    def append_run_now(self, run: BatchRun) -> AppendResult | None:
        """`append_now` of a run, whose memory the log takes over. None also if some of it was appended before."""
        if self._must_wait(run.record_count, len(run.data)) or (run.of_producers and not self._recovery.finish_now()):
            return None
        self._check_accepting()
        base, epoch = self._next, self.lease.epoch
        try:
            if run.of_producers and not self._follows(run.headers()):
                self._producers.forget_from(base)
                return None
            entry, offsets = assign_run(run, base, epoch)
            self._log([entry], run_frame(*self.wal_key, epoch, entry, batch_count=run.batch_count))
        except BaseException:
            self._producers.forget_from(base)
            raise
        return AppendResult(base, entry.end_offset, offsets=offsets)

    def _follows(self, headers: Sequence[BatchHeader]) -> bool:
        """Whether each batch follows what its producer sent before, which is remembered; False: some were appended before."""
        at, now_ms = self._next, self._clock.now_ms()
        for header in headers:
            if self._producers.validate(header, now_ms) is not None:
                return False
            self._producers.append(header, at, now_ms)
            at += header.last_offset_delta + 1
        return True

    def hold_place(self) -> AppendPlace:
        """What comes after this call is not appended without waiting, until the place is left."""
        self._queued += 1
        return AppendPlace(self._leave_place)

    def _leave_place(self) -> None:
        self._queued -= 1

    @asynccontextmanager
    async def appends_paused(self) -> AsyncIterator[None]:
        """No append is numbered during the body."""
        async with self._order:
            yield

    def record_missed(self, headers: Iterable[BatchHeader], at_ms: int | None = None) -> None:
        """These batches were refused (now, or at `at_ms`): what their producers send next must not overtake them."""
        at_ms = self._clock.now_ms() if at_ms is None else at_ms
        for header in headers:
            self._producers.record_missed(header, at_ms)

    async def acknowledged(self, appended: AppendResult, *, acks: int = ACKS_ALL) -> None:
        """Return when what was appended is as durable as `acks` asks for. Raises what `append` raises."""
        if acks != ACKS_NONE:
            await (self._visible if acks == ACKS_ALL else self._synced).reaches(appended.end_offset)
            self._session.check()

    def notify_durable(
        self, appended: AppendResult, on_durable: OnDurable, *, acks: int = ACKS_ALL
    ) -> Callable[[], None] | None:
        """Call `on_durable` when what was appended is as durable as `acks` asks for: with None, or with what `append` raises.

        None: it was called. Otherwise what to call to wait no longer; until then it is kept.
        """
        if acks == ACKS_NONE:
            on_durable(None)
            return None
        mark = self._visible if acks == ACKS_ALL else self._synced
        waiter = mark.on_reached(appended.end_offset, lambda error: on_durable(error or self._session.expiry_error()))
        return None if waiter is None else waiter.cancel

    async def wait_durable(self) -> None:
        """Return when everything numbered so far is durable, or has failed."""
        while self._durable < self._next:
            await self._settled.wait()

    @abstractmethod
    async def reserve(self, count: int = 0) -> None:
        """Reserve offsets in the store, at least `count` beyond the next one."""

    @abstractmethod
    def request_publish(self) -> None:
        """Ask for a publication without delay."""

    @abstractmethod
    def mark_dirty(self) -> None:
        """There is something to publish, or offsets to give back."""

    def _must_wait(self, count: int, size: int) -> bool:
        """Whether so many offsets and bytes cannot be appended at once."""
        return (
            self._queued > 0
            or self._order.locked()
            or self._next + count > self.fenced_record.ceiling
            or not self._wal.has_room(size)
            or bool(self._backpressure)
        )

    async def _until_ready(self, count: int, size: int) -> None:
        """Wait for room in RAM, for offsets, and for room in the WAL, until all hold at once."""
        while True:
            if self._backpressure:
                await self._backpressure.over(self._check_accepting)
            if self._next + count > self.fenced_record.ceiling:
                self._check_accepting()
                await self.reserve(count)
                continue
            await self._wal.room(size)
            self._check_accepting()
            if self._next + count <= self.fenced_record.ceiling:
                return

    def _append_in_order(self, batches: Sequence[RecordBatch], copy_below_bytes: int | None = None) -> AppendResult:
        """Deduplicate, assign offsets, queue for the WAL and put on the tail: no await, so nothing comes in between."""
        base = self._next
        try:
            fresh, appended = self._deduplicate(batches)
            if fresh:
                # Duplicates are not kept, so what came with them must not keep their memory.
                if copy_below_bytes is None or len(fresh) < len(batches):
                    copy_below_bytes = self._settings.copy_below_bytes
                made = assign_offsets(fresh, base, self.lease.epoch, copy_below_bytes=copy_below_bytes)
                self._log(made, wal_frame(*self.wal_key, self.lease.epoch, made))
        except BaseException:
            self._producers.forget_from(base)
            raise
        return appended

    def _deduplicate(self, batches: Sequence[RecordBatch]) -> tuple[list[RecordBatch], AppendResult]:
        """Which of the batches are new, and where all of them are (going to be)."""
        fresh: list[RecordBatch] = []
        offsets: list[tuple[int, int]] = []
        at, now_ms = self._next, self._clock.now_ms()
        for batch in batches:
            count = batch.header.last_offset_delta + 1
            offset = self._producers.validate(batch.header, now_ms)
            if offset is None:
                offset = at
                self._producers.append(batch.header, offset, now_ms)
                fresh.append(batch)
                at += count
            offsets.append((offset, offset + count))
        if len(offsets) == 1:
            return fresh, AppendResult(*offsets[0], not fresh)
        bases = [base for base, _ in offsets]
        return fresh, AppendResult(bases[0], max(end for _, end in offsets), not fresh, bases)

    def _log(self, entries: Sequence[TailEntry], frame: WalFrame) -> None:
        self._write(frame)
        tail, traffic = self.tail, self._traffic
        held_bytes = tail.size_bytes
        for entry in entries:
            tail.append(entry)
        traffic.appended_records += frame.end_offset - self._next
        traffic.appended_bytes += tail.size_bytes - held_bytes
        self._next = frame.end_offset
        self.appended_at_ms = self._clock.boot_ms()
        if self.oldest_unpublished_ms is None:
            self.oldest_unpublished_ms = self.appended_at_ms
            self.mark_dirty()

    def _write(self, frame: WalFrame) -> None:
        """Make it durable, and move what is once it is. A subclass may have other disks than this agent's WAL."""
        base, end, wal_failures = frame.base_offset, frame.end_offset, self._wal_failures
        # A callback of the WAL, not the caller's coroutine: a producer that disconnects must not hold back what it wrote.
        self._wal.append_with_callback(frame, lambda error: self._on_wal_result(error, base, end, wal_failures))

    def _on_wal_result(self, error: BaseException | None, base: int, end: int, wal_failures: int) -> None:
        if wal_failures != self._wal_failures:
            return  # an earlier frame failed, and this one's offsets were reassigned; recovery skips it, too
        if error is None:
            self._durable = end
            if self._session.alive():
                self._acknowledged = end
            self._producers.settle(end)
            self._visible.set(self.high_watermark)
            self._synced.set(end)
            if self.tail.size_bytes >= self.publish_bytes and not self.publish_requested:
                self.request_publish()  # once until it is published: this is the hot path
        else:
            self._wal_failures += 1
            lost = [batch.header for batch in self.tail.between(base, self._next)]
            self._producers.forget_from(base)
            self.record_missed(lost)
            self.tail.cut_from(base)
            self._next = base
            if not self.tail.size_bytes:  # there is nothing to publish after all, only offsets to give back
                self.oldest_unpublished_ms = None
                self.mark_dirty()
            self._visible.fail_above(base, error)
            self._synced.fail_above(base, error)
        self._settled.notify()

    def _check_accepting(self) -> None:
        if isinstance(self._closed, InvalidError):  # the topic was deleted
            raise self._closed
        if (error := self._closed or self._session.expiry_error()) is not None:
            raise self._not_appended(error)
        if not self._accepting:
            raise UnavailableError(f"partition {self.partition_id}", "it is moving to another agent")

    def _not_appended(self, error: HoldfastError) -> NotLeaderError:
        """What has no offsets yet may be sent again, here or to the next leader."""
        which = self.partition_id
        return NotLeaderError(which.topic, which.number, reason=f"nothing was appended: {error}")
