"""Ready messages by priority, and within a priority fairly by key: shares by weight, and limits of leases and rates. Pure.

The one rule: priorities win. Among the messages of the best rank, the next one is of the key that was served least for its weight
(start-time fair queueing: a grant moves its key's tag by 1/weight, whatever the rank; a key that was away begins where the others
are, so that nobody saves up). A key at a limit is passed over, and nobody waits for it.

Only `granted` charges a key, from a record, so that a replay ends at the same tags. Rates close keys at a grant and open them at
`tick`: time says when a message may go, and decides nothing else.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.heap.fair_rules import FairRules, charged_ms, opens_at_ms
from holdfast.heap.offset_table import OffsetTable
from holdfast.vocabulary.settings import check_between

WEIGHT_MAX: Final = 1_000
_OFFSET_BITS: Final = 56
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1
_READY: Final = 1 << 31  # beside the number of the key
_COST: Final = 1 << 32  # of a message of weight 1
_STALE_MIN: Final = 4_096


class KeyShare(NamedTuple):
    """What a snapshot keeps of a key."""

    key: str
    weight: int
    tag: int
    full_at_ms: float


@dataclass(slots=True)
class _Key:
    """The messages of one key."""

    number: int
    name: str
    weight: int = 1
    tag: int = 0
    full_at_ms: float = 0.0  # its bucket
    is_closed: bool = False  # by its rate
    messages: int = 0  # ready, delayed and leased
    leased: int = 0
    entries: list[int] = field(
        default_factory=list
    )  # a heap of rank and offset; what is not ready any more goes lazily
    place: tuple[int, int, int] | None = None  # in the order of keys; None: it has nothing, or is passed over


class FairIndex:
    """The messages of one partition: first assigned to a key, then ready, leased, ready again, and at last forgotten."""

    def __init__(self, rules: FairRules) -> None:
        self.rules = rules
        self._numbers = OffsetTable()  # of keys, and whether a message is ready
        self._ranks: dict[int, int] = {}  # of messages that were here before: other entries of them do not count
        self._keys: dict[str, _Key] = {}
        self._by_number: list[_Key | None] = [None]
        self._free: list[int] = []
        self._order: list[tuple[int, int, int]] = []  # a heap of places; stale ones go lazily
        self._closed: list[tuple[float, int]] = []  # a heap of (when it opens, key)
        self._ahead: list[tuple[int, int]] = []  # a heap of (tag, key) of keys without messages
        self._full_at_ms = 0.0
        self._is_closed = False  # by the rate of all keys
        self._virtual_time = 0
        self._granted_ms = 0.0  # the newest time of a grant
        self._messages = self._ready = 0

    def __len__(self) -> int:
        return self._ready

    def __contains__(self, offset: int) -> bool:
        return bool(self._numbers.get(offset) & _READY)

    # ── messages ──

    def assign(self, offset: int, key: str, weight: int = 1) -> None:
        """A new message of a key, which has this weight from now on. It is not ready yet."""
        check_between("weight", weight, 1, WEIGHT_MAX)
        found = self._keys.get(key) or self._add_key(key)
        found.weight = weight
        found.messages += 1
        self._messages += 1
        self._numbers.set(offset, found.number)

    def key_of(self, offset: int) -> str:
        """The key of a message that is here."""
        return self._key(offset).name

    def add(self, offset: int, rank: int, *, again: bool) -> bool:
        """A message is ready, or has another rank. `again`: it was here before. False: its key is at a limit."""
        key = self._key(offset)
        if offset not in self:
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
        return key.place is not None and not self._is_closed

    def discard(self, offset: int) -> bool:
        """A message is not ready any more; whether it was."""
        number = self._numbers.get(offset)
        if not number & _READY:
            return False
        self._numbers.set(offset, number & ~_READY)
        self._ready -= 1
        self._ranks.pop(offset, None)
        self._put_in_place(self._key(offset))
        return True

    def granted(self, offset: int, now_ms: float) -> None:
        """A message is leased, and its key charged. `now_ms`: the time of the grant's record."""
        self.discard(offset)
        key = self._key(offset)
        self._granted_ms = max(self._granted_ms, now_ms)
        self._charge(key, now_ms)
        self._put_in_place(key)
        self._forget_keys()

    def lease_ended(self, offset: int) -> int | None:
        """A lease is over, however it ended: the rank that may be handed out now because of that, if any."""
        key = self._key(offset)
        was_passed_over = key.place is None
        key.leased -= 1
        self._put_in_place(key)
        return key.place[0] if was_passed_over and key.place is not None and not self._is_closed else None

    def forget(self, offset: int) -> None:
        """A message is gone for good; its lease, if it had one, is over."""
        self.discard(offset)
        key = self._key(offset)
        self._numbers.set(offset, 0)
        key.messages -= 1
        self._messages -= 1
        if not key.messages:
            heapq.heappush(self._ahead, (key.tag, key.number))
            self._forget_keys()

    def peek(self, count: int, now_ms: float) -> list[tuple[int, int]]:
        """Ranks and offsets that grants at `now_ms` would take, in their order: the ranks never fall. Nothing changes."""
        before = self._virtual_time, self._full_at_ms, self._is_closed
        touched: dict[int, tuple[int, float, bool, int]] = {}
        taken: list[tuple[int, int]] = []
        closed = len(self._closed)
        entries: list[tuple[_Key, int]] = []
        while len(taken) < count and (key := self._first()) is not None:
            touched.setdefault(key.number, (key.tag, key.full_at_ms, key.is_closed, key.leased))
            entry = heapq.heappop(key.entries)
            entries.append((key, entry))
            while key.entries and key.entries[0] == entry:  # it was added twice
                heapq.heappop(key.entries)
            taken.append((entry >> _OFFSET_BITS, entry & _OFFSET_MASK))
            self._charge(key, now_ms)
            self._put_in_place(key)
        self._virtual_time, self._full_at_ms, self._is_closed = before
        if len(self._closed) > closed:
            self._closed = [(at_ms, number) for at_ms, number in self._closed if number not in touched]
            heapq.heapify(self._closed)
        for key, entry in entries:
            heapq.heappush(key.entries, entry)
        for number, (tag, full_at_ms, is_closed, leased) in touched.items():
            key = self._of(number)
            key.tag, key.full_at_ms, key.is_closed, key.leased = tag, full_at_ms, is_closed, leased
            self._put_in_place(key)
        return taken

    def tick(self, now_ms: float) -> bool:
        """Open what rates have closed, by now; whether anything was."""
        opened = False
        if self._is_closed and self._opens_at_ms() <= now_ms:
            self._is_closed, opened = False, True
        while self._closed and self._closed[0][0] <= now_ms:
            _, number = heapq.heappop(self._closed)
            key = self._by_number[number]
            if key is not None and key.is_closed and self._key_opens_at_ms(key) <= now_ms:
                key.is_closed, opened = False, True
                self._put_in_place(key)
        return opened

    def next_tick_ms(self) -> float | None:
        """When `tick` has something to open."""
        times = [self._closed[0][0]] if self._closed else []
        if self._is_closed:
            times.append(self._opens_at_ms())
        return min(times, default=None)

    # ── snapshots ──

    def shares(self) -> tuple[int, float, Sequence[KeyShare]]:
        """The virtual time, the bucket of all keys, and what every key has had."""
        keys = (KeyShare(key.name, key.weight, key.tag, key.full_at_ms) for key in self._keys.values())
        return self._virtual_time, self._full_at_ms, sorted(keys)

    def restore_shares(self, virtual_time: int, full_at_ms: float, shares: Sequence[KeyShare]) -> None:
        """Begin where a snapshot ended, before any message is assigned."""
        self._virtual_time, self._full_at_ms = virtual_time, full_at_ms
        self._is_closed = full_at_ms > 0 and bool(self.rules.rate)
        for name, weight, tag, key_full_at_ms in shares:
            key = self._add_key(name)
            key.weight, key.tag, key.full_at_ms = weight, tag, key_full_at_ms
            if key_full_at_ms and self.rules.rate_per_key:
                self._close(key)
            heapq.heappush(self._ahead, (tag, key.number))

    # ── keys ──

    def _of(self, number: int) -> _Key:
        key = self._by_number[number]
        if key is None:
            raise KeyError(number)
        return key

    def _key(self, offset: int) -> _Key:
        return self._of(self._numbers.get(offset) & ~_READY)

    def _add_key(self, name: str) -> _Key:
        number = self._free.pop() if self._free else len(self._by_number)
        key = self._keys[name] = _Key(number, name, tag=self._virtual_time)
        if number == len(self._by_number):
            self._by_number.append(key)
        else:
            self._by_number[number] = key
        return key

    def _forget_keys(self) -> None:
        """Keys without messages that are as good as new: neither served more than others, nor ahead of a rate.

        When nobody has messages, all are even. By the time of grants, not of clocks: a replay forgets the same ones.
        """
        if self._ahead and not self._messages:
            self._virtual_time = max(self._virtual_time, *(tag for tag, _ in self._ahead))
        while self._ahead and self._ahead[0][0] <= self._virtual_time:
            tag, number = self._ahead[0]
            key = self._by_number[number]
            if key is not None and not key.messages and key.tag == tag:
                if key.full_at_ms > self._granted_ms:
                    return
                del self._keys[key.name]
                self._by_number[number] = None
                self._free.append(number)
            heapq.heappop(self._ahead)

    def _charge(self, key: _Key, now_ms: float) -> None:
        rules = self.rules
        self._virtual_time = max(self._virtual_time, key.tag)
        key.tag += _COST // key.weight
        key.leased += 1
        if rules.rate_per_key:
            key.full_at_ms = charged_ms(key.full_at_ms, rules.rate_per_key, now_ms)
            if self._key_opens_at_ms(key) > now_ms:
                self._close(key)
        if rules.rate:
            self._full_at_ms = charged_ms(self._full_at_ms, rules.rate, now_ms)
            self._is_closed = self._opens_at_ms() > now_ms

    def _close(self, key: _Key) -> None:
        key.is_closed = True
        heapq.heappush(self._closed, (self._key_opens_at_ms(key), key.number))

    def _opens_at_ms(self) -> float:
        return opens_at_ms(self._full_at_ms, self.rules.rate, self.rules.burst)

    def _key_opens_at_ms(self, key: _Key) -> float:
        return opens_at_ms(key.full_at_ms, self.rules.rate_per_key, self.rules.burst)

    def _put_in_place(self, key: _Key) -> None:
        """A key's place in the order follows its first message, its tag and its limits."""
        entries, limit = key.entries, self.rules.leases_per_key_max
        while entries and not self._counts(entries[0]):
            heapq.heappop(entries)
        if not entries or key.is_closed or (limit and key.leased >= limit):
            key.place = None
            return
        place = entries[0] >> _OFFSET_BITS, key.tag, key.number
        if key.place != place:
            key.place = place
            heapq.heappush(self._order, place)
            if len(self._order) > 2 * len(self._keys) + _STALE_MIN:
                self._order = [each.place for each in self._keys.values() if each.place is not None]
                heapq.heapify(self._order)

    def _counts(self, entry: int) -> bool:
        offset = entry & _OFFSET_MASK
        if offset not in self:
            return False
        return not self._ranks or self._ranks.get(offset, entry >> _OFFSET_BITS) == entry >> _OFFSET_BITS

    def _first(self) -> _Key | None:
        """The key whose message is next."""
        while self._order and not self._is_closed:
            key = self._by_number[self._order[0][2]]
            if key is not None and key.place == self._order[0]:
                return key
            heapq.heappop(self._order)
        return None
