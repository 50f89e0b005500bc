"""A shared cursor: which records of a topic were handed out, delivered, or come back. Pure: reads and commits are the shard's.

The one rule: `position` never passes a record that was not delivered. A record that was handed out and whose answer was not written
comes back, and is handed out before all others.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple


class CursorRecord(NamedTuple):
    """A record as readers get it: its offset and its value."""

    offset: int
    value: bytes


class CursorRead(NamedTuple):
    """Records of a topic from an offset on (the log's start, if that is higher), and the offset after what was read.

    `next_offset` is the log's end if that is lower than the offset.
    """

    records: Sequence[CursorRecord]
    next_offset: int


class SharedCursor:
    """The cursor of one topic."""

    def __init__(self, topic_id: str, offset: int) -> None:
        self.topic_id = topic_id
        self.saved = offset  # what the store has
        self.read_at = offset  # where to read on
        self.buffered_bytes = 0
        self._buffer: deque[CursorRecord] = deque()  # read ahead, then what came back
        self._handed_out: dict[int, CursorRecord] = {}
        self._new_at = offset  # nothing from here on was ever handed out

    @property
    def position(self) -> int:
        """Everything below was delivered."""
        following = self._buffer[0].offset if self._buffer else self.read_at
        return min(
            following, min(self._handed_out, default=following)
        )  # what came back may be before what is handed out

    @property
    def new_at(self) -> int:
        """Nothing from here on was ever handed out by this owner."""
        return self._new_at

    @property
    def has_records(self) -> bool:
        """Whether records can be handed out without a read."""
        return bool(self._buffer)

    def is_ahead(self, offsets: int) -> bool:
        """Whether the next record is so many offsets, or more, ahead of what is saved."""
        return bool(self._buffer) and self._buffer[0].offset - self.saved >= offsets

    @property
    def is_settled(self) -> bool:
        """Whether nothing is handed out."""
        return not self._handed_out

    def add(self, read: CursorRead) -> None:
        """Records were read at `read_at`. Its end is lower: it has lost its tail, and appends go on from there."""
        if read.next_offset < self.read_at and not self._buffer and not self._handed_out:
            self.read_at = self._new_at = read.next_offset
            return
        fresh = [record for record in read.records if record.offset >= self.read_at]
        self._buffer.extend(fresh)
        self.buffered_bytes += sum(len(record.value) for record in fresh)
        self.read_at = max(self.read_at, read.next_offset)

    def forget_buffer(self) -> None:
        """Read again what was read ahead. What came back is kept: among it are records that were delivered."""
        while self._buffer and self._buffer[-1].offset >= self._new_at:
            record = self._buffer.pop()
            self.read_at = record.offset
            self.buffered_bytes -= len(record.value)

    def take(self, count: int, *, ahead_max: int) -> list[CursorRecord]:
        """Hand out the next records, at most `count`, and none that is `ahead_max` offsets ahead of what is saved."""
        taken: list[CursorRecord] = []
        while self._buffer and len(taken) < count and not self.is_ahead(ahead_max):
            taken.append(self._buffer.popleft())
        self._handed_out.update((record.offset, record) for record in taken)
        if taken:
            self._new_at = max(self._new_at, taken[-1].offset + 1)
        self.buffered_bytes -= sum(len(record.value) for record in taken)
        return taken

    def settle(self, records: Sequence[CursorRecord], delivered: int) -> None:
        """Of these, the first `delivered` were delivered; the others come back."""
        returned = []
        for at, record in enumerate(records):
            if self._handed_out.pop(record.offset, None) is not None and at >= delivered:
                returned.append(record)
        if returned:
            ordered = list(self._buffer)
            for record in returned:
                insort(ordered, record)
            self._buffer = deque(ordered)
            self.buffered_bytes += sum(len(record.value) for record in returned)


def in_runs(records: Sequence[CursorRecord], runs: Sequence[int]) -> Iterator[tuple[Sequence[CursorRecord], bool]]:
    """Records as runs of those that were delivered, that were not, that were, …; what is left over was not."""
    at = 0
    for place, count in enumerate(runs):
        yield records[at : at + count], place % 2 == 0
        at += count
    yield records[at:], False


class CursorDeliveries:
    """Records that were handed out together. Settled once: what was not delivered is handed out again."""

    def __init__(self, records: Sequence[CursorRecord], on_settled: Callable[[Sequence[int]], None]) -> None:
        self.records, self._on_settled = records, on_settled
        self._settled = False

    def settle(self, *runs: int) -> None:
        """The answers with the first `runs[0]` records are written, those with so many after them never will be, and so on."""
        if not self._settled:
            self._settled = True
            self._on_settled(runs)
