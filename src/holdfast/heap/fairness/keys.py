"""The fairness keys that a partition tells apart: their numbers, and which of them need be remembered. Pure.

The one rule: what is remembered follows from records alone, and never from the order of numbers. A key without messages is
forgotten once it is as good as new: not served more than others, and its bucket full.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.heap.fairness.rules import NO_KEY, OTHER_KEYS


class KeyShare(NamedTuple):
    """What a snapshot keeps of a key: its number there, its tag, and when its bucket is full."""

    number: int
    key: str
    tag: int
    full_at_ns: int


@dataclass(slots=True)
class FairKey:
    """One key. `tag`: what it was served, divided by its weight."""

    number: int
    name: str
    weight: int = 1
    tag: int = 0
    full_at_ns: int = 0  # its bucket
    is_closed: bool = False  # by its rate, as of the last tick
    messages: int = 0  # ready, delayed and leased
    leased: int = 0
    entries: list[int] = field(default_factory=list)  # a heap of ranks and offsets; what is not ready goes lazily
    place: tuple[int, int, int] | None = None  # in the order of keys; None: it has nothing, or is passed over


class FairKeys:
    """Keys by name and by number."""

    def __init__(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self._by_name: dict[str, FairKey] = {}
        self._by_number: list[FairKey | None] = [None]
        self._free: list[int] = []
        self._ahead: list[tuple[int, int]] = []  # a heap of (tag, number) of keys without messages
        self._filling: list[tuple[int, int]] = []  # a heap of (when full, number): those that are not ahead any more

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[FairKey]:
        return iter(self._by_name.values())

    def find(self, name: str, *, weight: int, tag: int) -> FairKey:
        """The key of a message, which may be new. Beyond `keys_max`, new ones are one together."""
        known = self._by_name.get(name)
        if known is not None:
            return known
        if len(self._by_name) >= self.keys_max and name not in (NO_KEY, OTHER_KEYS):
            return self.find(OTHER_KEYS, weight=1, tag=tag)
        number = self._free.pop() if self._free else len(self._by_number)
        return self._put(FairKey(number, name, weight, tag))

    def _put(self, key: FairKey) -> FairKey:
        while len(self._by_number) <= key.number:
            self._by_number.append(None)
        self._by_name[key.name] = self._by_number[key.number] = key
        return key

    def get(self, number: int) -> FairKey | None:
        """The key of a number, unless it was forgotten."""
        return self._by_number[number]

    def of(self, number: int) -> FairKey:
        """The key of a message."""
        key = self._by_number[number]
        if key is None:
            raise KeyError(number)
        return key

    def idle(self, key: FairKey) -> None:
        """It has no messages any more."""
        heapq.heappush(self._ahead, (key.tag, key.number))

    def highest_idle_tag(self, least: int) -> int:
        """Where everybody is even, when nobody has messages."""
        return max(least, max((tag for tag, _ in self._ahead), default=least))

    def forget(self, virtual_time: int, seen_ns: int) -> None:
        """Forget what is as good as new."""
        while self._ahead and self._ahead[0][0] <= virtual_time:
            tag, number = heapq.heappop(self._ahead)
            key = self._by_number[number]
            if key is not None and not key.messages and key.tag == tag:
                heapq.heappush(self._filling, (key.full_at_ns, number))
        while self._filling and self._filling[0][0] <= seen_ns:
            full_at_ns, number = heapq.heappop(self._filling)
            key = self._by_number[number]
            if key is None or key.messages or key.full_at_ns != full_at_ns or key.tag > virtual_time:
                continue
            del self._by_name[key.name]
            self._by_number[number] = None
            self._free.append(number)

    def shares(self) -> list[KeyShare]:
        """What every key has had, by name."""
        found = (KeyShare(key.number, key.name, key.tag, key.full_at_ns) for key in self)
        return sorted(found, key=lambda share: share.key)

    def restore(self, share: KeyShare, weight: int) -> FairKey:
        """A key of a snapshot."""
        return self._put(FairKey(share.number, share.key, weight, share.tag, share.full_at_ns))

    def restored(self) -> None:
        """Every key of a snapshot, and every message, is here."""
        self._free = [number for number in range(1, len(self._by_number)) if self._by_number[number] is None]
        for key in self:
            if not key.messages:
                self.idle(key)
