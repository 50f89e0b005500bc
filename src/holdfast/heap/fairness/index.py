"""Ready messages by priority, and within a priority fairly by key: shares by weight, limits of leases, rates. Pure.

The one rule: priorities win. Among the messages of the best rank, the next one is of the key that was served least for its weight
(start-time fair queueing: a grant moves its key's tag by 1/weight; a key that was away, or had worse messages than others for long,
goes on from where the others are, so that nobody saves up). A key at a limit is passed over, and nobody waits for it.

Only `granted` charges a key, from a record, so that a replay ends at the same tags and buckets. Whether a bucket is open is as of
the last `tick`: time says when a message may go, and decides nothing else. It stands where `PackedHeap` stands without fairness.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.heap.fairness.keys import FairKey, FairKeys, KeyShare
from holdfast.heap.fairness.offset_table import OffsetTable
from holdfast.heap.fairness.rules import (
    NO_KEY,
    NS_PER_MS,
    FairRules,
    charged_ns,
    emptied_ns,
    opens_at_ns,
)
from holdfast.heap.packed_heap import HeapImage, PackedHeap, entry_list

_OFFSET_BITS: Final = 56
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_READY: Final = 1 << 31  # beside the number of the key
_COST: Final = 1 << 32  # of a message of weight 1
_STALE_MIN: Final = 4_096


class FairImage(NamedTuple):
    """What a snapshot keeps beside the ready messages: rules, times, the bucket of all keys, keys, and whose each message is."""

    rules: FairRules
    virtual_time: int
    full_at_ns: int
    seen_ns: int
    keys: Sequence[KeyShare]
    numbers: dict[int, bytes]


class Throttled(NamedTuple):
    """How many keys are told apart, and how many have messages that wait for a lease to end, or for a rate."""

    keys: int = 0
    by_leases: int = 0
    by_rate: int = 0


class FairIndex:
    """The messages of one partition: first assigned to a key, then ready, leased, ready again, and at last forgotten."""

    def __init__(self, rules: FairRules) -> None:
        self.rules = rules
        self.tells = False  # whether `take_opened` is asked
        self._weights = dict(rules.weights)
        self._keys = FairKeys(rules.keys_max)
        self._numbers = OffsetTable()  # of keys, and whether a message is ready
        self._ranks: dict[int, int] = {}  # of messages that were here before: other entries of them do not count
        self._order: list[tuple[int, int, int]] = []  # a heap of places; stale ones go lazily
        self._closed: list[tuple[int, int]] = []  # a heap of (when it opens, key)
        self._opened: list[int] = []  # ranks that became free to go by another reason than their own
        self._full_at_ns = 0
        self._is_closed = False  # by the rate of all keys
        self._virtual_time = 0
        self._seen_ns = 0  # the newest time of a record
        self._now_ns = 0  # of the last tick, or grant
        self._messages = self._ready = 0

    def __len__(self) -> int:
        return self._ready

    def __contains__(self, offset: int) -> bool:
        return bool(self._numbers.get(offset) & _READY)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Ranks and offsets, in order."""
        for entry in sorted({entry for key in self._keys for entry in key.entries if self._counts(entry)}):
            yield entry >> _OFFSET_BITS, entry & _OFFSET_MASK

    # ── messages ──

    def assign(self, offset: int, key: str | None, now_ms: int) -> None:
        """A new message of a key, which is not ready yet. `now_ms`: of its record."""
        self._seen(now_ms)
        name = key if key and self.rules.by_key else NO_KEY
        if len(self._keys) >= self.rules.keys_max:
            self._keys.forget(self._virtual_time, self._seen_ns)
        found = self._keys.find(name, weight=self._weights.get(name, 1), tag=self._virtual_time)
        found.messages += 1
        self._messages += 1
        self._numbers.set(offset, found.number)

    def key_of(self, offset: int) -> str:
        """The key that a message counts as."""
        return self._key(offset).name

    def add(self, offset: int, rank: int, *, again: bool) -> None:
        """A message is ready, or has another rank. `again`: it was here before."""
        key = self._key(offset)
        was_ready = offset in self
        if not was_ready:
            self._numbers.set(offset, key.number | _READY)
            self._ready += 1
        if again:
            self._ranks[offset] = rank
        if not key.entries:
            key.tag = max(key.tag, self._virtual_time)
        heapq.heappush(key.entries, rank << _OFFSET_BITS | offset)
        if len(key.entries) > 2 * key.messages + _STALE_MIN:
            key.entries = list(set(filter(self._counts, key.entries)))
            heapq.heapify(key.entries)
        self._put_in_place(key)
        if was_ready:
            self._note_opened()

    def discard(self, offset: int) -> bool:
        """A message is not ready any more; whether it was."""
        if not self._discard(offset):
            return False
        self._note_opened()
        return True

    def _discard(self, offset: int) -> bool:
        number = self._numbers.get(offset)
        if not number & _READY:
            return False
        self._numbers.set(offset, number & ~_READY)
        self._ready -= 1
        self._ranks.pop(offset, None)
        self._put_in_place(self._key(offset))
        return True

    def granted(self, offset: int, now_ms: int) -> bool:
        """A message is leased, and its key charged; False: it was not ready. `now_ms`: the time of the grant's record."""
        if not self._discard(offset):
            return False
        key = self._key(offset)
        self._seen(now_ms)
        now_ns = now_ms * NS_PER_MS
        self._now_ns = max(self._now_ns, now_ns)
        self._charge(key, now_ns)
        self._put_in_place(key)
        self._keys.forget(self._virtual_time, self._seen_ns)
        return True

    def lease_ended(self, offset: int) -> None:
        """A lease is over, however it ended."""
        key = self._key(offset)
        key.leased -= 1
        self._put_in_place(key)
        self._note_opened()

    def forget(self, offset: int) -> None:
        """A message is gone for good; its lease, if it had one, is over."""
        self.discard(offset)
        key = self._key(offset)
        self._numbers.set(offset, 0)
        key.messages -= 1
        self._messages -= 1
        if not key.messages:
            self._keys.idle(key)
            self._forget_keys()

    def clear(self) -> None:
        """Every message is gone. What keys were served is not."""
        self._numbers, self._messages, self._ready = OffsetTable(), 0, 0
        self._ranks.clear()
        self._order.clear()
        for key in self._keys:
            if key.messages:
                key.messages = key.leased = 0
                key.entries.clear()
                key.place = None
                self._keys.idle(key)
        self._forget_keys()

    def take(self, count: int) -> list[tuple[int, int]]:
        """Ranks and offsets that grants would take now, in their order: the ranks never fall. The caller grants them."""
        return self.peek(count)

    def peek(self, count: int) -> list[tuple[int, int]]:
        """The same. Nothing changes."""
        before = self._virtual_time, self._full_at_ns, self._is_closed
        touched: dict[int, tuple[int, int, bool, int]] = {}
        taken: list[tuple[int, int]] = []
        closed = len(self._closed)
        entries: list[tuple[FairKey, int]] = []
        while len(taken) < count and (key := self._first()) is not None:
            touched.setdefault(key.number, (key.tag, key.full_at_ns, key.is_closed, key.leased))
            entry = heapq.heappop(key.entries)
            entries.append((key, entry))
            while key.entries and key.entries[0] == entry:  # it was added twice
                heapq.heappop(key.entries)
            taken.append((entry >> _OFFSET_BITS, entry & _OFFSET_MASK))
            self._charge(key, self._now_ns)
            self._put_in_place(key)
        self._virtual_time, self._full_at_ns, self._is_closed = before
        if len(self._closed) > closed:
            self._closed = [each for each in self._closed if each[1] not in touched]
            heapq.heapify(self._closed)
        for key, entry in entries:
            heapq.heappush(key.entries, entry)
        for number, (tag, full_at_ns, is_closed, leased) in touched.items():
            key = self._keys.of(number)
            key.tag, key.full_at_ns, key.is_closed, key.leased = tag, full_at_ns, is_closed, leased
            self._put_in_place(key)
        return taken

    def least_ranks(self, count: int) -> tuple[list[int], bool]:
        """The ranks that may go, at most so many, and whether others need an event of their own before they may.

        What only waits for time while something of its key may go has no such event: there may be more.
        """
        ranks = [rank for rank, _ in self.peek(count)]
        rated = bool(self.rules.interval_ns or self.rules.key_interval_ns)
        return ranks, len(ranks) == self._ready or (len(ranks) < count and (not ranks or not rated))

    # ── time and rules ──

    def tick(self, now_ms: int) -> bool:
        """Open what rates have closed, by now; whether anything was."""
        self._now_ns = now_ms * NS_PER_MS
        opened = 0
        if self._is_closed and self._opens_at_ns() <= self._now_ns:
            self._is_closed, opened = False, 1
        while self._closed and self._closed[0][0] <= self._now_ns:
            _, number = heapq.heappop(self._closed)
            key = self._keys.get(number)
            if key is None or not key.is_closed:
                continue
            if self._key_opens_at_ns(key) > self._now_ns:  # it was charged since, by a clock that was ahead of this one
                self._close(key)
                continue
            key.is_closed = False
            opened += 1
            self._put_in_place(key)
        for _ in range(opened):
            self._note_opened()
        return opened > 0

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to open."""
        times = [self._closed[0][0]] if self._closed else []
        if self._is_closed:
            times.append(self._opens_at_ns())
        return -(-min(times) // NS_PER_MS) if times and self._ready else None

    def change_rules(self, rules: FairRules, now_ms: int) -> None:
        """Other rules, or the same under a clock that went back, from the record of this time on."""
        self._seen(now_ms)
        self.rules, self._weights, self._keys.keys_max = rules, dict(rules.weights), rules.keys_max
        self._now_ns = now_ns = now_ms * NS_PER_MS
        self._full_at_ns = emptied_ns(self._full_at_ns, rules.interval_ns, rules.burst, now_ns)
        self._is_closed = bool(rules.interval_ns) and self._opens_at_ns() > now_ns
        self._closed.clear()
        for key in self._keys:
            key.weight = self._weights.get(key.name, 1)
            key.full_at_ns = emptied_ns(key.full_at_ns, rules.key_interval_ns, rules.key_burst, now_ns)
            key.is_closed = False
            self._close_if_empty(key, now_ns)
            self._put_in_place(key)
            if not key.messages:
                self._keys.idle(key)
        self._note_opened()

    def is_ahead_of(self, now_ms: int) -> bool:
        """Whether a bucket is emptier than it can be at this time: the clock went back."""
        rules, now_ns = self.rules, now_ms * NS_PER_MS
        return self._full_at_ns > now_ns + rules.burst * rules.interval_ns or any(
            key.full_at_ns > now_ns + rules.key_burst * rules.key_interval_ns for key in self._keys
        )

    def take_opened(self) -> list[int]:
        """For each message that may go since the last call, though nothing was said of it, a rank that is not above its own."""
        opened, self._opened = self._opened, []
        return opened

    def throttled(self) -> Throttled:
        """What waits at limits, as of the last tick."""
        waiting = [key for key in self._keys if key.entries]
        by_rate = sum(self._is_closed or key.is_closed for key in waiting)
        return Throttled(len(self._keys), sum(map(self._at_lease_limit, waiting)), by_rate)

    # ── as a heap of the state ──

    def changed(self) -> Collection[int]:
        """The offsets that were here before, or were changed."""
        return self._ranks.keys()

    def changed_number(self, offset: int) -> int | None:
        """The rank of a message that was here before, or was changed; of others only their entry knows it."""
        return self._ranks.get(offset)

    def from_offset(self, start: int) -> Iterator[int]:
        """The ready offsets from `start` on, by offset."""
        return (offset for offset, number in self._numbers.numbered(start) if number & _READY)

    def shares(self) -> tuple[int, int, int, list[tuple[str, int, int]], list[tuple[int, str]]]:
        """What charges have led to, and whose every message is: equal after the same records."""
        keys = [share[1:] for share in self._keys.shares()]
        messages = [(offset, self._keys.of(number & ~_READY).name) for offset, number in self._numbers.numbered()]
        return self._virtual_time, self._full_at_ns, self._seen_ns, keys, messages

    def image(self) -> HeapImage:
        """A copy of the ready messages."""
        return HeapImage([entry for key in self._keys for entry in key.entries], {}, self._ranks.copy())

    def fair_image(self) -> FairImage:
        """A copy of the rest."""
        bucket = self._virtual_time, self._full_at_ns, self._seen_ns
        return FairImage(self.rules, *bucket, self._keys.shares(), self._numbers.chunks())

    @classmethod
    def restored(cls, ready: HeapImage, fair: FairImage, leased: Iterable[int]) -> "FairIndex":
        """The index of an image, which it takes over. Everything with a rate is closed until the first tick."""
        index = cls(fair.rules)
        index._virtual_time, index._full_at_ns, index._seen_ns = fair.virtual_time, fair.full_at_ns, fair.seen_ns
        index._is_closed = bool(fair.rules.interval_ns and fair.full_at_ns)
        index._ranks = ready.changed
        for at, chunk in fair.numbers.items():
            index._numbers.restore(at, chunk)
        for share in fair.keys:
            key = index._keys.restore(share, index._weights.get(share.key, 1))
            if index._has_rate(key) and key.full_at_ns:
                index._close(key)
        for _, number in index._numbers.numbered():
            index._keys.of(number & ~_READY).messages += 1
            index._messages += 1
            index._ready += bool(number & _READY)
        for offset in leased:
            index._key(offset).leased += 1
        index._take_entries(ready.entries if isinstance(ready.entries, list) else entry_list(ready.entries))
        index._keys.restored()
        return index

    @classmethod
    def of_packed(
        cls, rules: FairRules, ready: PackedHeap, others: Iterable[int], leased: Iterable[int]
    ) -> "FairIndex":
        """What a partition without fairness has, as messages without a key. `others`: delayed, then leased ones."""
        index = cls(rules)
        index._ranks = ready.changed_numbers().copy()
        key = index._keys.find(NO_KEY, weight=index._weights.get(NO_KEY, 1), tag=0)
        for offset in others:
            index._numbers.set(offset, key.number)
            key.messages += 1
        for offset in ready.from_offset(0):
            index._numbers.set(offset, key.number | _READY)
            key.messages += 1
        index._messages, index._ready = key.messages, len(ready)
        key.leased = sum(1 for _ in leased)
        index._take_entries(entry_list(ready.entries()))
        if not key.messages:
            index._keys.idle(key)
        return index

    def packed(self) -> PackedHeap:
        """The ready messages by their priority alone."""
        entries = (entry for key in self._keys for entry in key.entries)
        return PackedHeap.of(filter(self._counts, entries), self._ranks)

    def _take_entries(self, entries: Iterable[int]) -> None:
        for entry in entries:
            if self._counts(entry):
                self._key(entry & _OFFSET_MASK).entries.append(entry)
        for key in self._keys:
            heapq.heapify(key.entries)
            self._put_in_place(key)

    # ── keys ──

    def _key(self, offset: int) -> FairKey:
        return self._keys.of(self._numbers.get(offset) & ~_READY)

    def _seen(self, now_ms: int) -> None:
        self._seen_ns = max(self._seen_ns, now_ms * NS_PER_MS)

    def _forget_keys(self) -> None:
        """When nobody has messages, all are even. By the times of records, not of clocks: a replay forgets the same keys."""
        if not self._messages:
            self._virtual_time = self._keys.highest_idle_tag(self._virtual_time)
        self._keys.forget(self._virtual_time, self._seen_ns)

    def _charge(self, key: FairKey, now_ns: int) -> None:
        rules = self.rules
        start = self._virtual_time = max(self._virtual_time, key.tag)
        key.tag = start + _COST // key.weight
        key.leased += 1
        if self._has_rate(key):
            key.full_at_ns = charged_ns(key.full_at_ns, rules.key_interval_ns, now_ns)
            self._close_if_empty(key, self._now_ns)
        if rules.interval_ns:
            self._full_at_ns = charged_ns(self._full_at_ns, rules.interval_ns, now_ns)
            self._is_closed = self._opens_at_ns() > self._now_ns

    def _has_rate(self, key: FairKey) -> bool:
        return bool(self.rules.key_interval_ns) and key.name != NO_KEY

    def _close_if_empty(self, key: FairKey, now_ns: int) -> None:
        if self._has_rate(key) and self._key_opens_at_ns(key) > now_ns:
            self._close(key)

    def _close(self, key: FairKey) -> None:
        key.is_closed = True
        heapq.heappush(self._closed, (self._key_opens_at_ns(key), key.number))

    def _opens_at_ns(self) -> int:
        return opens_at_ns(self._full_at_ns, self.rules.interval_ns, self.rules.burst)

    def _key_opens_at_ns(self, key: FairKey) -> int:
        return opens_at_ns(key.full_at_ns, self.rules.key_interval_ns, self.rules.key_burst)

    def _at_lease_limit(self, key: FairKey) -> bool:
        limit = self.rules.key_leases_max
        return bool(limit) and key.leased >= limit and key.name != NO_KEY

    def _put_in_place(self, key: FairKey) -> None:
        """A key's place in the order follows its first message, its tag and its limits."""
        entries = key.entries
        while entries and not self._counts(entries[0]):
            heapq.heappop(entries)
        if not entries or key.is_closed or self._at_lease_limit(key):
            key.place = None
            return
        place = entries[0] >> _OFFSET_BITS, key.tag, key.number
        if key.place != place:
            key.place = place
            heapq.heappush(self._order, place)
            if len(self._order) > 2 * len(self._keys) + _STALE_MIN:
                self._order = [each.place for each in self._keys if each.place is not None]
                heapq.heapify(self._order)

    def _counts(self, entry: int) -> bool:
        offset = entry & _OFFSET_MASK
        if offset not in self:
            return False
        return not self._ranks or self._ranks.get(offset, entry >> _OFFSET_BITS) == entry >> _OFFSET_BITS

    def _first(self) -> FairKey | None:
        """The key whose message is next."""
        while self._order and not self._is_closed:
            key = self._keys.get(self._order[0][2])
            if key is not None and key.place == self._order[0]:
                return key
            heapq.heappop(self._order)
        return None

    def _note_opened(self) -> None:
        """Behind what changed, one more message of a key or of all may go than before: no better than the best."""
        if self.tells and self.rules.has_limits and (first := self._first()) is not None and first.place is not None:
            self._opened.append(first.place[0])
