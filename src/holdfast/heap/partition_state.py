"""What a heap partition is, as its records say: who is ready, delayed, leased, and on the way to another heap. Pure.

The one rule: `apply` looks at the record and the state, and at nothing else. No clock, no chance, no setting: two states that took
the same records are equal (`canonical_state.encode_state` compares them byte for byte). What a leader decides is in `decisions`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.heap.batch.model import BatchRecord, Forgotten, Prepared, Resolved
from holdfast.heap.batch.reservations import Reservations
from holdfast.heap.config import PRIORITY_MAX
from holdfast.heap.dedup import Dedup
from holdfast.heap.fairness.index import FairIndex
from holdfast.heap.fairness.rules import OFF, FairRules
from holdfast.heap.packed_heap import PackedHeap
from holdfast.heap.records import (
    Ack,
    Cancel,
    Copy,
    Enqueue,
    Extend,
    Forget,
    Grant,
    GrantBasis,
    Move,
    Moved,
    Op,
    Operation,
    PartitionCount,
    Purge,
    Ready,
    Reprioritise,
    Reserve,
    Retry,
    SpineEpoch,
)

_BIAS: Final = 1 << 63
_RANK_BITS: Final = 64
_OFFSET_BITS: Final = 56
_STALE_MIN: Final = 4_096
_FAIR_PEEK_MAX: Final = 1_024
_PEEK_MAX: Final = 4_096  # found in order from the top; more than these are found by a bound
_PARTS: Final = (
    16  # of the heap, which are searched one at a time: with 131,072 messages in all of them, a millisecond each
)
_WORDS: Final = 32_768  # entries that are compared with several
_RANK_MASK: Final = (1 << _RANK_BITS) - 1
_LAST: Final = (_RANK_MASK, (1 << _OFFSET_BITS) - 1)  # nothing is behind it


class MessageLease(NamedTuple):
    """A message that is out: the rank it has, until when and to whom, and which GRANT record says so."""

    rank: int
    deadline_ms: int
    granted_ms: int
    granted_at: int
    epoch: int
    consumer: str


class OutgoingMessage(NamedTuple):
    """A message on its way to another heap."""

    offset: int
    priority: int
    topic: str
    partition: int
    attempts: int
    reason: str


class Counters(msgspec.Struct):
    """How often what happened, since the partition's first record."""

    enqueued: int = 0
    granted: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    released: int = 0
    moved: int = 0
    cancelled: int = 0


class HeapState:
    """One partition. `next_offset`: every record below was applied."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.next_offset = 0
        self.ready: PackedHeap | FairIndex = PackedHeap()  # by rank
        self.fair: FairIndex | None = None  # the same, where there are fairness keys or rates
        self.delayed = PackedHeap()  # by when, then rank
        self.leases: dict[int, MessageLease] = {}
        self.consumers: dict[str, int] = {}  # leases of each
        self.attempts: dict[int, int] = {}  # of messages that failed before
        self.retries: dict[int, int] = {}  # of messages with a limit of their own
        self.ranks: dict[int, int] = {}  # of delayed messages that were reprioritised
        self.outbox: dict[int, OutgoingMessage] = {}  # by the offset of the MOVE, in order
        self.copies: dict[int, int] = {}  # where messages are now that were written again
        self.reserved = Reservations()  # messages of batches that are not decided
        self.dedup = Dedup()
        self.spine_epoch = 0  # of the newest spine that was obeyed
        self.partitions = 0  # that the heap has at least; 0: as many as it was created with
        self.counters = Counters()
        self._moving: set[int] = set()  # the messages of the outbox
        self._deadlines: list[int] = []  # a heap of the keys of `_expiring`; entries go lazily
        self._expiring: dict[int, set[int]] = {}  # leased offsets by deadline and grant
        self._apply: dict[type, Callable[[int, int, Any], None]] = {
            Enqueue: self._enqueue,
            Grant: self._grant,
            Ack: self._ack,
            Retry: self._retry,
            Extend: self._extend,
            Ready: self._ready,
            Move: self._move,
            Moved: self._moved,
            Cancel: self._cancel,
            Reprioritise: self._reprioritise,
            Purge: self._purge,
            Forget: self._forget,
            SpineEpoch: self._spine,
            PartitionCount: self._grown,
            Copy: self._copy,
            Reserve: lambda at, timestamp_ms, operation: self.reserved.reserve(at, timestamp_ms, operation),
            Prepared: self._batch,
            Resolved: self._batch,
            Forgotten: self._batch,
            FairRules: self._fairness,
            GrantBasis: lambda at, timestamp_ms, operation: None,  # for those who read the history
        }

    # ── what is asked ──

    def rank(self, priority: int) -> int:
        """A priority as a number of which the least comes first."""
        return priority + _BIAS if self.mode == "min" else PRIORITY_MAX - priority

    def priority(self, rank: int) -> int:
        """The priority of a rank."""
        return rank - _BIAS if self.mode == "min" else PRIORITY_MAX - rank

    def __len__(self) -> int:
        """Messages that are neither acknowledged nor gone."""
        return len(self.ready) + len(self.delayed) + len(self.leases)

    def __contains__(self, offset: int) -> bool:
        return offset in self.ready or offset in self.delayed or offset in self.leases

    def priority_of(self, offset: int, enqueued: int) -> int:
        """The priority of a message that was enqueued with another one, perhaps."""
        lease = self.leases.get(offset)
        rank = lease.rank if lease is not None else self.ranks.get(offset, self.ready.changed_number(offset))
        return enqueued if rank is None else self.priority(rank)

    @property
    def fair_rules(self) -> FairRules:
        """The rules of fairness that the log has."""
        return OFF if self.fair is None else self.fair.rules

    def next_ready_ms(self) -> int | None:
        """When the next delay ends."""
        first = self.delayed.first()
        return None if first is None else first[0] >> _RANK_BITS

    def next_deadline_ms(self) -> int | None:
        """When the next lease ends."""
        while self._deadlines:
            entry = self._deadlines[0]
            if entry in self._expiring:
                return entry >> _OFFSET_BITS
            heapq.heappop(self._deadlines)
        return None

    @property
    def least_first(self) -> bool:
        """Whether the least priority comes first."""
        return self.mode == "min"

    def take(self, count: int) -> tuple[tuple[int, int], ...]:
        """(offset, priority) of up to so many messages from the top; the caller applies a GRANT of them."""
        if isinstance(self.ready, PackedHeap):
            return self.ready.take_granted(count, self.mode == "min")
        return tuple([(offset, self.priority(rank)) for rank, offset in self.ready.take(count)])

    def best_offsets(self, count: int) -> Iterator[list[int]]:
        """About so many messages from the top, which stay, in pieces; of a fair heap a few.

        The heap may change between two pieces: some may then be missing, or there twice.
        """
        if not isinstance(self.ready, PackedHeap):
            yield [offset for _, offset in self.ready.peek(min(count, _FAIR_PEEK_MAX))]
        elif count <= _PEEK_MAX:
            yield [offset for _, offset in self.ready.peek(count)]
        else:
            bound = self.ready.bound(count)
            for part in range(_PARTS):
                yield self.ready.offsets_within(bound, part, _PARTS)

    def best_bound(self, count: int) -> tuple[int, int] | None:
        """The rank and offset that about so many messages from the top are not behind; None: a fair heap has none."""
        return (self.ready.bound(count) or _LAST) if isinstance(self.ready, PackedHeap) else None

    def bounds(self, count: int, buckets: int) -> tuple[tuple[int, int], ...]:
        """What divides about so many messages from the top into as many buckets, or fewer; of a fair heap nothing does."""
        if not isinstance(self.ready, PackedHeap) or not self.ready.entry_count():
            return ()
        return tuple(sorted(set(self.ready.bounds(count, buckets))))

    def words_within(self, bounds: tuple[tuple[int, int], ...], start: int) -> Iterator[bytes]:
        """Messages within the last of some bounds whose record is not before `start`, as words (`picks`), in pieces.

        As with `best_offsets`, some may be missing, or there twice.
        """
        if isinstance(self.ready, PackedHeap):
            for first in range(0, self.ready.entry_count(), _WORDS):
                yield self.ready.words_within(bounds, self.copies, start, first, first + _WORDS)

    def due(self, now_ms: int, count: int) -> tuple[tuple[int, int], ...]:
        """(offset, priority) of delayed messages whose time has come; the caller applies a READY of them."""
        found: list[tuple[int, int]] = []
        while len(found) < count and (ready_ms := self.next_ready_ms()) is not None and ready_ms <= now_ms:
            number, offset = self.delayed.take(1)[0]
            found.append((offset, self.priority(self.ranks.get(offset, number & _RANK_MASK))))
        return tuple(found)

    def overdue(self, now_ms: int, count: int) -> tuple[int, ...]:
        """Leased messages whose deadline has passed; the caller applies their end."""
        found: list[int] = []
        late: list[int] = []
        while len(found) < count and (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            late.append(heapq.heappop(self._deadlines))
            found += sorted(self._expiring[late[-1]])
        for entry in late:  # they go with the last of their leases
            heapq.heappush(self._deadlines, entry)
        return tuple(dict.fromkeys(found))[:count]

    def delayed_messages(self) -> Iterator[tuple[int, int, int]]:
        """(when, rank, offset) of every delayed message, in order."""
        for number, offset in self.delayed:
            yield number >> _RANK_BITS, self.ranks.get(offset, number & _RANK_MASK), offset

    def needs(self, offset: int) -> bool:
        """Whether a message waits, is leased, is reserved, or is on its way to another heap."""
        return offset in self or offset in self._moving or offset in self.reserved.messages

    def place(self, offset: int) -> int:
        """Where the record of a message is: its ENQUEUE, or its last COPY."""
        return self.copies.get(offset, offset)

    def lowest_place(self) -> int:
        """No record below is needed for its payload: of no message that waits, is leased, reserved, or on its way elsewhere."""
        lowest = min(self.copies.values(), default=self.next_offset)
        for offsets in self._by_offset(0):
            first = next((offset for offset in offsets if offset not in self.copies), lowest)
            lowest = min(lowest, first)
        return lowest

    def count_below(self, limit: int) -> int:
        """How many messages have their record below `limit`."""
        return sum(self.place(offset) < limit for offsets in self._by_offset(0) for offset in _until(offsets, limit))

    def messages_below(self, limit: int, *, start: int, count: int) -> list[int]:
        """Messages whose record is below `limit`, from `start` on, by their offset, at most so many."""
        found: list[int] = []
        for offsets in self._by_offset(start):
            here = (offset for offset in _until(offsets, limit) if self.place(offset) < limit)
            found += islice(here, count)
        return sorted(found)[:count]

    def _by_offset(self, start: int) -> Iterator[Iterator[int]]:
        yield self.ready.from_offset(start)
        yield self.delayed.from_offset(start)
        yield iter(sorted(offset for offset in self.leases if offset >= start))
        yield iter(sorted(offset for offset in self._moving if offset >= start))
        yield iter(sorted(offset for offset in self.reserved.messages if offset >= start))

    def rebuild(self) -> None:
        """Derive what follows from the rest, after a snapshot was read."""
        self._deadlines, self._expiring = [], {}
        for offset, lease in self.leases.items():
            self._expire_at((offset,), lease.deadline_ms, lease.granted_at)
        self.consumers = dict(Counter(lease.consumer for lease in self.leases.values()))
        self._moving = {move.offset for move in self.outbox.values()}

    def _expire_at(self, offsets: Collection[int], deadline_ms: int, granted_at: int) -> None:
        entry = deadline_ms << _OFFSET_BITS | granted_at
        group = self._expiring.get(entry)
        if group is None:
            group = self._expiring[entry] = set()
            if len(self._deadlines) > 2 * len(self._expiring) + _STALE_MIN:
                self._deadlines = list(self._expiring)
                heapq.heapify(self._deadlines)
            else:
                heapq.heappush(self._deadlines, entry)
        group.update(offsets)

    def _expire_no_more(self, offset: int, lease: MessageLease) -> None:
        entry = lease.deadline_ms << _OFFSET_BITS | lease.granted_at
        group = self._expiring[entry]
        group.discard(offset)
        if not group:
            del self._expiring[entry]

    # ── what records do ──

    def apply(self, offset: int, timestamp_ms: int, operation: Operation) -> None:
        """The record at `offset`, of a time, with this operation, is part of the log."""
        self._apply[type(operation)](offset, timestamp_ms, operation)
        self.next_offset = offset + 1

    def apply_enqueues(self, first: int, timestamp_ms: int, operations: Sequence[Enqueue]) -> None:
        """`apply` of ENQUEUE records one after another, from an offset on."""
        if not operations:
            return
        ready = self.ready
        priorities, _, times, retries, producers, *_ = zip(*operations, strict=True)
        if isinstance(ready, FairIndex) or any(times) or max(retries) >= 0:
            for offset, operation in enumerate(operations, first):
                self.apply(offset, timestamp_ms, operation)
            return
        ready.add_run(first, priorities, self.mode == "min")
        if any(producers):
            self.dedup.add_run(producers, first, timestamp_ms)
        self.counters.enqueued += len(operations)
        self.next_offset = first + len(operations)

    def _enqueue(self, at: int, timestamp_ms: int, operation: Enqueue) -> None:
        rank = self.rank(operation.priority)
        if self.fair is not None:
            self.fair.assign(at, operation.fairness_key, timestamp_ms)
        if operation.not_before_ms:
            self.delayed.add(at, operation.not_before_ms << _RANK_BITS | rank, again=False)
        else:
            self.ready.add(at, rank, again=False)
        if operation.max_retries >= 0:
            self.retries[at] = operation.max_retries
        if operation.producer is not None:
            self.dedup.add(operation.producer, at, timestamp_ms)
        self.counters.enqueued += 1

    def _grant(self, at: int, timestamp_ms: int, operation: Grant) -> None:
        epoch, deadline_ms, consumer, entries = operation
        # Without those of a record that got another place than its leader thought: it lost its leadership over that.
        if isinstance(self.ready, PackedHeap):
            held = self.ready.discard_pairs(entries)
        else:
            held = [entry for entry in entries if self.ready.granted(entry[0], timestamp_ms)]
        if held:
            given, priorities = zip(*held, strict=True)
            ranks = map(self.rank, priorities)
            rest = (repeat(deadline_ms), repeat(timestamp_ms), repeat(at), repeat(epoch), repeat(consumer))
            self.leases.update(
                zip(given, map(tuple.__new__, repeat(MessageLease), zip(ranks, *rest, strict=False)), strict=True)
            )
            self._expire_at(given, deadline_ms, at)
            self.counters.granted += len(given)
            self.consumers[consumer] = self.consumers.get(consumer, 0) + len(given)

    def _ack(self, at: int, timestamp_ms: int, operation: Ack) -> None:
        self.counters.acked += self._drop_all(operation.offsets)

    def _retry(self, at: int, timestamp_ms: int, operation: Retry) -> None:
        for offset, ready_ms in operation.entries:
            lease = self._end_lease(offset)
            if lease is None:
                continue
            if operation.op is not Op.RELEASE:
                self.attempts[offset] = self.attempts.get(offset, 0) + 1
            if ready_ms:
                self.delayed.add(offset, ready_ms << _RANK_BITS | lease.rank, again=True)
            else:
                self.ready.add(offset, lease.rank, again=True)
        name = {Op.NACK: "nacked", Op.EXPIRE: "expired", Op.RELEASE: "released"}[operation.op]
        setattr(self.counters, name, getattr(self.counters, name) + len(operation.entries))

    def _extend(self, at: int, timestamp_ms: int, operation: Extend) -> None:
        for offset, deadline_ms in operation.entries:
            lease = self.leases.get(offset)
            if lease is not None:
                self._expire_no_more(offset, lease)
                self.leases[offset] = lease._replace(deadline_ms=deadline_ms)
                self._expire_at((offset,), deadline_ms, lease.granted_at)

    def _ready(self, at: int, timestamp_ms: int, operation: Ready) -> None:
        for offset, priority in operation.entries:
            if self.delayed.discard(offset):
                self.ranks.pop(offset, None)
                self.ready.add(offset, self.rank(priority), again=True)

    def _move(self, at: int, timestamp_ms: int, operation: Move) -> None:
        copy = self.copies.get(operation.offset)
        if self._drop(operation.offset):
            self.outbox[at] = OutgoingMessage(*operation)
            self._moving.add(operation.offset)
            if copy is not None:
                self.copies[operation.offset] = copy
            self.counters.moved += 1

    def _moved(self, at: int, timestamp_ms: int, operation: Moved) -> None:
        for moved_at in operation.offsets:
            move = self.outbox.pop(moved_at, None)
            if move is not None:
                self._moving.discard(move.offset)
                self.copies.pop(move.offset, None)

    def _cancel(self, at: int, timestamp_ms: int, operation: Cancel) -> None:
        for offset in operation.offsets:
            if self._drop(offset):
                self.counters.cancelled += 1

    def _reprioritise(self, at: int, timestamp_ms: int, operation: Reprioritise) -> None:
        for offset, priority in operation.entries:
            rank, lease = self.rank(priority), self.leases.get(offset)
            if lease is not None:
                self.leases[offset] = lease._replace(rank=rank)
            elif offset in self.ready:
                self.ready.add(offset, rank, again=True)
            elif offset in self.delayed:
                self.ranks[offset] = rank

    def _purge(self, at: int, timestamp_ms: int, operation: Purge) -> None:
        if operation.below >= at:
            self.counters.cancelled += len(self)
            self.delayed = PackedHeap()
            if self.fair is not None:
                self.fair.clear()
            else:
                self.ready = PackedHeap()
            for kept in (self.leases, self._expiring, self.consumers, self.attempts, self.retries, self.ranks):
                kept.clear()
            self.copies = {offset: at for offset, at in self.copies.items() if self.needs(offset)}
            return
        gone = [offset for _, offset in self.ready if offset < operation.below]
        gone += [offset for _, offset in self.delayed if offset < operation.below]
        gone += [offset for offset in self.leases if offset < operation.below]
        for offset in gone:
            self._drop(offset)
        self.counters.cancelled += len(gone)

    def _copy(self, at: int, timestamp_ms: int, operation: Copy) -> None:
        if self.needs(operation.offset):
            self.copies[operation.offset] = at

    def _batch(self, at: int, timestamp_ms: int, operation: BatchRecord) -> None:
        for offset, message in self.reserved.apply(operation):
            if isinstance(operation, Resolved) and operation.committed:
                self._enqueue(offset, message.enqueued_ms, message.enqueue)
            else:
                self.copies.pop(offset, None)

    def _fairness(self, at: int, timestamp_ms: int, operation: FairRules) -> None:
        if self.fair is not None and not operation.is_off:
            self.fair.change_rules(operation, timestamp_ms)
        elif self.fair is not None:
            self.ready, self.fair = self.fair.packed(), None
        elif isinstance(self.ready, PackedHeap) and not operation.is_off:
            others = chain(self.delayed.from_offset(0), self.leases)
            self.ready = self.fair = FairIndex.of_packed(operation, self.ready, others, self.leases)

    def _spine(self, at: int, timestamp_ms: int, operation: SpineEpoch) -> None:
        self.spine_epoch = max(self.spine_epoch, operation.epoch)

    def _grown(self, at: int, timestamp_ms: int, operation: PartitionCount) -> None:
        self.partitions = max(self.partitions, operation.partitions)

    def _forget(self, at: int, timestamp_ms: int, operation: Forget) -> None:
        self.dedup.forget(operation.before_ms, keep_floor=operation.keep_floor)

    def _drop(self, offset: int) -> bool:
        """The message is gone; whether it was here."""
        for kept in (self.attempts, self.retries, self.ranks, self.copies):
            if kept:
                kept.pop(offset, None)
        here = self._end_lease(offset) is not None or self.ready.discard(offset) or self.delayed.discard(offset)
        if here and self.fair is not None:
            self.fair.forget(offset)
        return here

    def _drop_all(self, offsets: Sequence[int]) -> int:
        """Messages are gone, most of them leased; how many were here."""
        if self.fair is not None:
            return sum(map(self._drop, offsets))
        for kept in (self.attempts, self.retries, self.ranks, self.copies):
            if kept:
                for offset in offsets:
                    kept.pop(offset, None)
        pop, expiring, consumers = self.leases.pop, self._expiring, self.consumers
        dropped = 0
        for offset in offsets:
            lease = pop(offset, None)
            if lease is None:
                dropped += self.ready.discard(offset) or self.delayed.discard(offset)
                continue
            dropped += 1
            _, deadline_ms, _, granted_at, _, consumer = lease
            entry = deadline_ms << _OFFSET_BITS | granted_at
            group = expiring[entry]
            group.discard(offset)
            if not group:
                del expiring[entry]
            left = consumers[consumer] - 1
            if left:
                consumers[consumer] = left
            else:
                del consumers[consumer]
        return dropped

    def _end_lease(self, offset: int) -> MessageLease | None:
        lease = self.leases.pop(offset, None)
        if lease is not None:
            self._expire_no_more(offset, lease)
            if self.fair is not None:
                self.fair.lease_ended(offset)
            left = self.consumers[lease.consumer] - 1
            if left:
                self.consumers[lease.consumer] = left
            else:
                del self.consumers[lease.consumer]
        return lease


def _until(offsets: Iterator[int], limit: int) -> Iterator[int]:
    for offset in offsets:
        if offset >= limit:
            return
        yield offset
