"""RAM cache: ranges of objects in memory, the least recently read evicted when a budget of bytes is full.

A read is served by any cached range that covers it, because objects never change. No I/O.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.objects import Buffer
from holdfast.vocabulary.tracked_memory import retained_bytes

ENTRY_BYTES: Final = 200  # overhead of a range

RangeKey = tuple[str, int, int | None]  # key, start, end as requested; a tail of n bytes starts at -n


@dataclass(frozen=True, slots=True)
class _CachedRange:
    start: int  # negative: counted from the object's end, at an unknown position
    body: Buffer
    last: bool  # the object ends where this piece does

    def range(self, start: int, end: int | None) -> Buffer | None:
        if not 0 <= self.start <= start:
            return None
        if not self.last and (end is None or end > self.start + len(self.body)):
            return None
        return self._cut(start - self.start, None if end is None else end - self.start)

    def tail(self, size_bytes: int) -> Buffer | None:
        covers = self.last and (len(self.body) >= size_bytes or self.start == 0)
        return self._cut(max(0, len(self.body) - size_bytes), None) if covers else None

    def _cut(self, start: int, end: int | None) -> Buffer:
        return self.body[start:end]  # a slice of everything is the same object, no copy


class RamCache:
    """Ranges of many objects, within `bytes_max`."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pieces: OrderedDict[RangeKey, _CachedRange] = OrderedDict()  # least recently read first
        self._names: dict[str, set[RangeKey]] = {}
        self.bytes_held = 0
        self.evicted = 0

    def find(self, name: RangeKey) -> Buffer | None:
        """The requested bytes, if a cached range covers them."""
        key, start, end = name
        exact = (name,) if name in self._pieces else ()
        for held in (*exact, *self._names.get(key, ())):
            piece = self._pieces[held]
            found = piece.tail(-start) if start < 0 else piece.range(start, end)
            if found is not None:
                self._pieces.move_to_end(held)
                return found
        return None

    def add(self, name: RangeKey, body: Buffer) -> None:
        """Cache what was read as `name`, unless it exceeds the whole budget."""
        key, start, end = name
        cost = _cost(body)
        if cost > self._bytes_max or name in self._pieces:
            return
        if start < 0:
            whole = len(body) < -start  # the object is smaller than the request
            piece = _CachedRange(0 if whole else -len(body), body, True)
        else:
            piece = _CachedRange(start, body, end is None or len(body) < end - start)
        self._pieces[name] = piece
        self._names.setdefault(key, set()).add(name)
        self.bytes_held += cost
        while self.bytes_held > self._bytes_max:
            self._drop(next(iter(self._pieces)))
            self.evicted += 1

    def evict(self, key: str) -> None:
        """Drop every range of an object."""
        for name in tuple(self._names.get(key, ())):
            self._drop(name)

    def __iter__(self) -> Iterator[RangeKey]:
        return iter(self._pieces)

    def _drop(self, name: RangeKey) -> None:
        piece = self._pieces.pop(name)
        self.bytes_held -= _cost(piece.body)
        names = self._names[name[0]]
        names.discard(name)
        if not names:
            del self._names[name[0]]


def _cost(body: Buffer) -> int:
    return ENTRY_BYTES + (retained_bytes(body) if isinstance(body, memoryview) else len(body))
