"""A partition under this agent's lease: append, read the tail, know what is durable, and say what is to be published.

Rules it keeps (SAFETY 7–9):
- Offsets are handed out only below the ceiling reserved in the store, and never twice.
- Nothing is visible before it is durable at the topic's level: `high_watermark` moves after fdatasync (`local`) or after the fenced
  commit that names the object (`object`), and reads stop there.
- Before an acknowledgement the session is looked at again: an owner that slept does not answer for what may be somebody else's.

It does no uploading (`publishing`) and no recovering (`opening`).
"""

import asyncio
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.store import AtVersion, Conflict, Operation, Put, Requirement, Store
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import Batch, Buffer, patch
from holdfast.log.keys import state_key
from holdfast.log.partition.producers import ProducerRefusedError, Producers
from holdfast.log.partition.records import PartitionRecord
from holdfast.log.partition.segments import Segments
from holdfast.log.partition.tail import Tail, TailBatch
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal, WalFrame
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, HoldfastError, UnavailableError
from holdfast.vocabulary.tasks import Bell


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a producer's batches went. `duplicate`: they were there already, and were not appended again."""

    base_offset: int
    end_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which partition: the topic's id and name, and the number."""

    topic: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


class LeadingPartition:
    """One partition that this agent leads. Made by `opening.open_partition`."""

    def __init__(
        self,
        place: Place,
        *,
        lease: Lease,
        session: HeldSession,
        store: Store,
        wal: Wal,
        clock: Clock,
        chance: Chance,
        settings: LogSettings,
        level: str,
        record: PartitionRecord,
        record_version: int,
        segments: Segments,
        producers: Producers,
        tail: Tail,
    ) -> None:
        self.place, self.lease, self.level, self.segments, self.tail = place, lease, level, segments, tail
        self.record = record
        self.record_version = record_version
        self.record_lock = asyncio.Lock()  # whoever changes the record in the store holds it
        self._session, self._store, self._wal = session, store, wal
        self._clock, self._chance, self._settings = clock, chance, settings
        self._producers = producers
        self._order = asyncio.Lock()  # first come, first numbered
        self._next = self._durable = tail.end
        self._burst = 0  # appends since the last failure of the WAL
        self._topic_bytes = bytes.fromhex(place.topic_id)
        self._accepting = True
        self._moved = _Watermark()
        self._published = Bell()
        self.oldest_unpublished_ms: int | None = clock.boot_ms() if tail.size_bytes else None
        self.wants_publishing = Bell()

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
    def unpublished_bytes(self) -> int:
        """What object storage has not taken yet (and a little that it has)."""
        return self.tail.size_bytes

    async def append(self, batches: Sequence[Batch]) -> Appended:
        """Number, log and acknowledge batches, all or none.

        `ProducerRefusedError`: they do not follow what their producer sent. `UnavailableError`: nothing was appended, try again.
        `ExpiredError`, `FencedError`: somebody else leads, or may.
        """
        count = sum(batch.header.last_offset_delta + 1 for batch in batches)
        async with self._order:
            self._check_accepting()
            await self._room()
            while self._next + count > self.record.reserved:
                await self.reserve(count)
                self._check_accepting()
            base, duplicate = self._judge(batches)
            if not duplicate:
                self._number(batches)
        await self._until_visible(base + count)
        self._session.check()
        return Appended(base, base + count, duplicate)

    def _judge(self, batches: Sequence[Batch]) -> tuple[int, bool]:
        """Where the batches go, or where they went before. Remembers new ones; refuses all if one does not fit."""
        at, now_ms = self._next, self._clock.now_ms()
        try:
            for header, _ in batches:
                seen = self._producers.judge(header)
                if seen is not None:
                    return seen, True
                self._producers.append(header, at, now_ms)
                at += header.last_offset_delta + 1
        except ProducerRefusedError:
            self._producers.forget_from(self._next)
            raise
        return self._next, False

    def _number(self, batches: Sequence[Batch]) -> None:
        """Assign offsets, patch, put on the tail and hand to the WAL: no await, so nothing comes in between."""
        base = at = self._next
        payload: list[Buffer] = []
        for header, view in batches:
            data: Buffer = bytearray(view) if view.readonly or len(view) < self._settings.copy_below_bytes else view
            patch(data, base_offset=at, leader_epoch=self.lease.epoch)
            end = at + header.last_offset_delta + 1
            patched = header._replace(base_offset=at, leader_epoch=self.lease.epoch)
            self.tail.append(TailBatch(at, end, data, patched))
            payload.append(data)
            at = end
        self._next = at
        if self.oldest_unpublished_ms is None:
            self.oldest_unpublished_ms = self._clock.boot_ms()
        frame = WalFrame(
            topic_id=self._topic_bytes,
            partition=self.place.number,
            epoch=self.lease.epoch,
            base_offset=base,
            count=at - base,
            payload=payload,
        )
        written = self._wal.append(frame)
        burst = self._burst
        # On the future, not in the caller's coroutine: a producer that hangs up must not hold back what it wrote.
        written.add_done_callback(lambda done: self._written(done, base, at, burst))

    def _written(self, done: asyncio.Future[int], base: int, end: int, burst: int) -> None:
        if burst != self._burst:
            return  # an earlier frame failed and took this one's offsets back with it; recovery skips it too
        error = ClosedError("WAL") if done.cancelled() else done.exception()
        if error is None:
            self._durable = end
            self._moved.set(self.high_watermark)
            self.wants_publishing.ring()
        else:
            self._burst += 1
            self._producers.forget_from(base)
            self.tail.cut_from(base)
            self._next = base
            self._moved.fail_above(base, error)

    async def _until_visible(self, end: int) -> None:
        if self.level != "local":
            self.wants_publishing.ring()
        await self._moved.reaches(end, self.high_watermark)

    async def _room(self) -> None:
        """Wait until object storage has taken enough of what came before."""
        deadline_ms = self._clock.boot_ms() + self._settings.room_wait_ms
        while self.tail.size_bytes > self._settings.unpublished_bytes_max:
            self.wants_publishing.ring()
            left_ms = deadline_ms - self._clock.boot_ms()
            if left_ms <= 0:
                raise UnavailableError(
                    f"partition {self.place}",
                    f"{self.tail.size_bytes} bytes wait for object storage, {self._settings.unpublished_bytes_max} may",
                )
            await self._published.wait_ms(self._clock, left_ms)
        self._check_accepting()

    async def reserve(self, count: int) -> None:
        """Book offsets in the store, at least `count` beyond the next one."""
        async with self.record_lock:
            ceiling = self._next + max(count, self._settings.reserve_offsets)
            if ceiling > self.record.reserved:
                await self.change_record(msgspec.structs.replace(self.record, reserved=ceiling, wal=self._wal.id))

    async def change_record(
        self, record: PartitionRecord, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> None:
        """Write the record, fenced, together with what belongs to it. The caller holds `record_lock`."""
        key = state_key(self.place.topic_id, self.place.number)
        outcome = await commit_fenced(
            self._store,
            self.lease,
            clock=self._clock,
            chance=self._chance,
            require=(AtVersion(key, self.record_version), *require),
            apply=(Put(key, msgspec.json.encode(record)), *apply),
        )
        if isinstance(outcome, Conflict):
            raise CorruptError(f"partition {self.place}", "its record was changed by somebody without the lease")
        self.took(record, outcome.version)

    def took(self, record: PartitionRecord, version: int) -> None:
        """The store now holds `record` as of commit `version`."""
        self.record, self.record_version = record, version
        self._moved.set(self.high_watermark)

    def was_published(self, until: int) -> None:
        """Object storage has everything below `until`: forget it here."""
        self.tail.forget_until(until)
        self.oldest_unpublished_ms = self._clock.boot_ms() if self._next > until else None
        self._wal.release(self._topic_bytes, self.place.number, until)
        self._published.ring()

    def read_tail(self, offset: int, *, bytes_max: int) -> list[Buffer] | None:
        """Visible batches from `offset` on; None: it is no longer in the tail, read segments."""
        if offset < self.tail.start:
            return None
        return self.tail.read(offset, below=self.high_watermark, bytes_max=bytes_max)

    async def wait_beyond(self, offset: int, wait_ms: int) -> bool:
        """Wait until the high watermark is above `offset`, at most `wait_ms`."""
        return await self._moved.passes(offset, self.high_watermark, self._clock, wait_ms)

    def publishable(self) -> list[TailBatch]:
        """Durable batches that object storage does not have."""
        return self.tail.between(self.record.published, self._durable)

    def producers_below(self, offset: int) -> Producers:
        """For a footer; expired ones are forgotten first."""
        settings = self._settings
        self._producers.expire(
            self._clock.now_ms(), expiry_ms=settings.producer_expiry_ms, count_max=settings.producers_max
        )
        return self._producers

    def stop_accepting(self) -> None:
        """Refuse appends from now on; what was accepted goes on."""
        self._accepting = False
        self._published.ring()

    def accept_again(self) -> None:
        """A drain came to nothing."""
        self._accepting = True

    async def until_durable(self) -> None:
        """Return when everything numbered so far is durable, or has failed."""
        while self._durable < self._next:
            await self._moved.passes(self._durable, self._durable, self._clock, 1_000)

    def close(self, error: HoldfastError) -> None:
        """Everybody who waits here hears `error`."""
        self._accepting = False
        self._moved.fail_above(0, error)
        self._published.ring()

    def _check_accepting(self) -> None:
        if not self._accepting:
            raise UnavailableError(f"partition {self.place}", "it is moving to another agent")
        self._session.check()


class _Watermark:
    """Who waits for the high watermark, and how far."""

    def __init__(self) -> None:
        self._turn = itertools.count()
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap

    def set(self, value: int) -> None:
        while self._waiters and self._waiters[0][0] <= value:
            waiter = heapq.heappop(self._waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def fail_above(self, value: int, error: BaseException) -> None:
        failed = [each for each in self._waiters if each[0] > value]
        self._waiters = [each for each in self._waiters if each[0] <= value]
        heapq.heapify(self._waiters)
        for _, _, waiter in failed:
            if not waiter.done():
                waiter.set_exception(error)

    async def reaches(self, value: int, now: int) -> None:
        """Return when the watermark is at `value` or beyond; raises what `fail_above` says."""
        if now < value:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiters, (value, next(self._turn), waiter))
            await waiter

    async def passes(self, offset: int, now: int, clock: Clock, wait_ms: float) -> bool:
        """Whether the watermark is beyond `offset` within `wait_ms`; raises what `fail_above` says."""
        if now > offset or wait_ms <= 0:
            return now > offset
        waiting = asyncio.ensure_future(self.reaches(offset + 1, now))
        sleeping = asyncio.ensure_future(clock.sleep_ms(wait_ms))
        try:
            await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return False
            waiting.result()
            return True
        finally:
            waiting.cancel()
            sleeping.cancel()
