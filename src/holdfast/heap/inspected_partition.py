"""What operators and upkeep do with a heap partition: look at messages, withdraw and move them, copy their history."""

from collections.abc import Callable, Collection, Sequence

import msgspec

from holdfast.heap.errors import MessageNotFoundError
from holdfast.heap.fairness.index import Throttled
from holdfast.heap.message_id import message_id
from holdfast.heap.model import PartitionStats, PeekedMessage, StoredMessage
from holdfast.heap.partition_core import PartitionCore
from holdfast.heap.records import (
    Cancel,
    Copy,
    Move,
    Moved,
    Operation,
    Purge,
    Reprioritise,
)
from holdfast.heap.state_image import StateImage, capture
from holdfast.heap.waiting_pops import POP_BYTES_MAX


class InspectedPartition(PartitionCore):
    """A partition whose messages can be looked at and changed without a lease."""

    # ── operators ──

    async def peek(self, count: int) -> list[PeekedMessage]:
        """The messages that would be popped next."""
        self._journal.check()
        top = [(offset, self.state.priority(rank)) for rank, offset in self.state.ready.peek(count)]
        await self._journal.durable()
        first = await self._reader.read_first([offset for offset, _ in top], POP_BYTES_MAX)
        return await self._peeked(top[: len(first)])

    async def find(self, offsets: Collection[int]) -> list[PeekedMessage]:
        """Messages that wait or are leased, by their offsets; those that are gone are left out."""
        self._journal.check()
        here = [offset for offset in offsets if offset in self.state]
        await self._journal.durable()
        return await self._peeked([(offset, None) for offset in here])

    async def find_first(self, offsets: Sequence[int], bytes_max: int) -> tuple[list[PeekedMessage], int]:
        """Those that wait, the first of them, one at least, as far as their payloads are not too large together; how many were
        looked at."""
        self._journal.check()
        here = [offset for offset in offsets if self._is_here(offset, unleased=True)]
        await self._journal.durable()
        stored = await self._reader.read_first(here, bytes_max)
        seen = len(offsets) if len(stored) == len(here) else offsets.index(here[len(stored)])
        read = zip(here, stored, strict=False)
        return [self._peeked_at(*each) for each in read if self._is_here(each[0], unleased=True)], seen

    async def _peeked(self, chosen: Sequence[tuple[int, int | None]]) -> list[PeekedMessage]:
        stored = await self._reader.read([offset for offset, _ in chosen])
        return [self._peeked_at(offset, stored[offset], priority) for offset, priority in chosen]

    def _peeked_at(self, offset: int, stored: StoredMessage, priority: int | None = None) -> PeekedMessage:
        enqueue = stored.enqueue
        return PeekedMessage(
            self._message_id(offset, stored),
            self.number,
            enqueue.payload,
            self.state.priority_of(offset, enqueue.priority) if priority is None else priority,
            stored.enqueued_ms,
            self.state.attempts.get(offset, 0),
            enqueue.partition_key,
            enqueue.headers,
            enqueue.origin,
            enqueue.fairness_key,
        )

    def _is_here(self, offset: int, *, unleased: bool) -> bool:
        return offset in self.state and not (unleased and offset in self.state.leases)

    async def cancel(self, offsets: Collection[int], *, unleased: bool = False) -> list[int]:
        """Withdraw messages, leased or not, or those that are not leased; those that were there."""
        return await self._change(offsets, lambda here: Cancel(tuple(here)), unleased=unleased, gone=True)

    async def reprioritise(self, offset: int, priority: int, message: str) -> None:
        """Give a message another priority. One that is leased has it when it comes back. `MessageNotFoundError`."""
        if not await self._change((offset,), lambda here: Reprioritise(((offset, priority),))):
            raise MessageNotFoundError(self.rules.topic, message)

    async def _change(
        self,
        offsets: Collection[int],
        operation: Callable[[Sequence[int]], Operation],
        *,
        unleased: bool = False,
        gone: bool = False,
    ) -> list[int]:
        """Do it with those that are here. `gone`: they are not any more then, whether or not their caller waits for it."""
        self._journal.check()
        here = list(dict.fromkeys(offset for offset in offsets if self._is_here(offset, unleased=unleased)))
        if here:
            self._add((operation(here),))
            if gone:
                self._reader.forget(here)
        await (self._answerable() if here else self._journal.durable())
        return here

    async def purge(self) -> int:
        """Withdraw every message that is here now; how many."""
        self._journal.check()
        count = len(self.state)
        if count:
            self._add((Purge(self.state.next_offset),))
            self._reader.forget_all()
        await self._journal.durable()
        return count

    async def move(self, moves: Sequence[Move], *, unleased: bool = False) -> int:
        """Send messages to other heaps, or those that are not leased; how many were still here. They arrive soon after."""
        self._journal.check()
        here = [move for move in moves if self._is_here(move.offset, unleased=unleased)]
        if here:
            self._add(here)
        await self._journal.durable()
        return len(here)

    async def moved(self, moves: Sequence[int]) -> None:
        """These moves have arrived."""
        self._journal.check()
        self._reader.forget([self.state.outbox[move].offset for move in moves if move in self.state.outbox])
        self._add((Moved(tuple(moves)),))
        await self._journal.durable()

    async def stored(self, offsets: Sequence[int], bytes_max: int) -> list[StoredMessage]:
        """The first of these messages, as the log has them, also of those that are gone, when everything so far is durable."""
        self._journal.check()
        await self._journal.durable()
        return await self._reader.read_first(offsets, bytes_max)

    async def stored_at(self, offsets: Collection[int]) -> dict[int, StoredMessage]:
        """All of these messages, as `stored`, by their offsets."""
        self._journal.check()
        await self._journal.durable()
        return await self._reader.read(offsets)

    # ── its history ──

    def image(self) -> StateImage:
        """A copy of the state, for a snapshot."""
        self._journal.check()
        return capture(self.state)

    async def copy_forward(self, offsets: Collection[int]) -> int:
        """Write messages again, those that are still needed, so that their records may go; how many bytes. Returns when durable."""
        stored = await self.stored_at(offsets)
        self._journal.check()
        copies = [Copy(offset, stored[offset].enqueued_ms, stored[offset].enqueue) for offset in offsets]
        copies = [copy for copy in copies if self.state.needs(copy.offset)]
        for copy in copies:
            self._add((copy,), self._journal.checked_bytes((copy.enqueue,)))
        await self._journal.durable()
        return sum(len(copy.enqueue.payload) for copy in copies)

    def stats(self) -> PartitionStats:
        """How many messages are where."""
        state, counters = self.state, self.state.counters
        throttled = state.fair.throttled() if state.fair is not None else Throttled()
        newest = self.snapshots.newest if self.snapshots is not None else None
        return PartitionStats(
            partition=self.number,
            ready=len(state.ready),
            delayed=len(state.delayed),
            inflight=len(state.leases),
            moving=len(state.outbox),
            duplicates=self.duplicates,
            snapshot_bytes=newest.size_bytes if newest is not None else 0,
            snapshot_age_ms=max(0, self.now_ms() - newest.taken_at_ms) if newest is not None else -1,
            snapshot_pause_ms=self.snapshots.figures.pause_ms if self.snapshots is not None else 0.0,
            reserved=len(state.reserved.messages),
            keys=throttled.keys,
            keys_at_limit=throttled.by_leases,
            keys_at_rate=throttled.by_rate,
            **msgspec.structs.asdict(counters),
        )

    def _message_id(self, offset: int, stored: StoredMessage) -> str:
        return message_id(self._topic_id, self.number, offset, stored.enqueued_ms)
