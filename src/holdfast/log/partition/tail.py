"""The tail: batches that are not yet in object storage, and before them some that only just are, in offset order, in RAM.

Nothing here goes over the batches one by one but what hands them out: there may be a hundred thousand, and it is the event loop
that publishes and forgets them. Both come for many batches at a time (deleting from the front one by one collapses throughput).
What was appended together stays together, as one entry: it is published and forgotten as a whole. The tail does not track
durability: callers pass up to where they may read.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

from holdfast.log.batches import BatchHeader, Buffer
from holdfast.log.batches.batch_run import cut_run, locate_in_run, run_headers
from holdfast.log.partition.tail_budget import TailBudget


class TailBatch(NamedTuple):
    """One batch, patched, where it arrived or copied out."""

    base_offset: int
    end_offset: int
    data: Buffer
    header: BatchHeader

    @property
    def max_timestamp_ms(self) -> int:
        return self.header.max_timestamp

    def batches(self) -> "list[TailBatch]":
        return [self]


class TailRun(NamedTuple):
    """Batches that were appended together, one behind another in one buffer; see `BatchRun`."""

    base_offset: int
    end_offset: int
    data: Buffer
    max_timestamp_ms: int

    def batches(self) -> list[TailBatch]:
        """Each of them. Who wants few of many calls `part`."""
        return [
            TailBatch(header.base_offset, header.last_offset + 1, data, header)
            for header, data in zip(run_headers(self.data), cut_run(self.data), strict=True)
        ]

    def part(self, offset: int, *, below: int, bytes_max: int, one: bool) -> tuple[list[memoryview], int, bool]:
        """What `Tail.read` returns of it, how many bytes that is, and whether it ends with the run; `one`: at least one batch."""
        start, end = locate_in_run(self.data, offset, below=below, bytes_max=bytes_max, one=one)
        return cut_run(memoryview(self.data)[start:end]), end - start, end == len(self.data)


TailEntry = TailBatch | TailRun


class TailPiece(NamedTuple):
    """Consecutive entries, and how many bytes they are."""

    entries: list[TailEntry]
    size_bytes: int

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset


class Tail:
    """Batches [`start`, `end`), contiguous but for gaps that were never appended."""

    __slots__ = (
        "_bases",
        "_budget",
        "_entries",
        "_positions",
        "_total_bytes",
        "_unpublished",
        "end",
        "size_bytes",
        "start",
    )

    def __init__(self, start: int) -> None:
        self._budget: TailBudget | None = None
        self._bases: list[int] = []
        self._entries: list[TailEntry] = []
        self._positions: list[int] = []  # of each entry: how many bytes were ever appended before it
        self._total_bytes = 0  # ever appended
        self._unpublished = 0  # the index of the first entry that object storage does not have
        self.start = self.end = start
        self.size_bytes = 0  # of what is not published

    def append(self, entry: TailEntry) -> None:
        """Add the next batch, or the next ones."""
        size_bytes = len(entry.data)
        self._bases.append(entry.base_offset)
        self._entries.append(entry)
        self._positions.append(self._total_bytes)
        self._total_bytes += size_bytes
        self.end = entry.end_offset
        self._charge(size_bytes)

    def read(self, offset: int, *, below: int, bytes_max: int) -> list[Buffer]:
        """Whole batches from the one that holds `offset`, ending below `below`; at least one if there is one."""
        found: list[Buffer] = []
        size = 0
        for at in range(self._find(offset), len(self._entries)):
            entry = self._entries[at]
            if entry.end_offset <= offset:
                continue  # the offset lies in a gap behind it
            if isinstance(entry, TailRun):
                part, part_bytes, whole = entry.part(offset, below=below, bytes_max=bytes_max - size, one=not found)
                found += part
                size += part_bytes
                if not whole:
                    return found
                continue
            if entry.end_offset > below or (found and size + len(entry.data) > bytes_max):
                return found
            found.append(entry.data)
            size += len(entry.data)
        return found

    def entries(self, start: int, end: int) -> list[TailEntry]:
        """The entries that lie in [start, end)."""
        return self._entries[bisect_left(self._bases, start) : self._ending_by(end)]

    def between(self, start: int, end: int) -> list[TailBatch]:
        """The batches that lie in [start, end), one by one."""
        last = bisect_left(self._bases, end)
        found = [batch for entry in self._entries[self._find(start) : last] for batch in entry.batches()]
        return [batch for batch in found if start <= batch.base_offset and batch.end_offset <= end]

    def pieces(self, start: int, end: int, piece_bytes: int, *, most: int) -> list[TailPiece]:
        """The entries that lie in [start, end) in pieces of about `piece_bytes` and of equal size, at most `most`."""
        first, last = bisect_left(self._bases, start), self._ending_by(end)
        if first >= last:
            return []
        base, total = self._positions[first], self._bytes_of(first, last)
        count = min(-(-total // piece_bytes), most)
        cuts = [first]
        for number in range(1, count):
            wanted = base + total * number // count
            cuts.append(bisect_left(self._positions, wanted, cuts[-1] + 1, last))
        cuts = [*(cut for cut in cuts if cut < last), last]
        return [TailPiece(self._entries[at:until], self._bytes_of(at, until)) for at, until in pairwise(cuts)]

    def mark_published(self, offset: int) -> int:
        """Batches that end at or below `offset` are in object storage, and no longer count; how many bytes they are.

        They can still be read, until they are forgotten.
        """
        published = max(self._unpublished, self._ending_by(offset))
        size_bytes = self._bytes_of(self._unpublished, published)
        self._unpublished = published
        self._charge(-size_bytes)
        return size_bytes

    def forget_until(self, offset: int) -> None:
        """Drop batches that end at or below `offset`."""
        self.mark_published(offset)
        self.start = max(self.start, min(offset, self.end))
        forgotten = self._ending_by(offset)
        del self._bases[:forgotten], self._entries[:forgotten], self._positions[:forgotten]
        self._unpublished -= forgotten

    def cut_from(self, offset: int) -> None:
        """Drop batches from `offset` on: they were never made durable."""
        at = bisect_left(self._bases, offset)
        self._charge(-self._bytes_of(max(at, self._unpublished), len(self._entries)))
        self._total_bytes -= self._bytes_of(at, len(self._entries))
        del self._bases[at:], self._entries[at:], self._positions[at:]
        self.end = offset

    def join_budget(self, budget: TailBudget) -> None:
        """What this tail holds counts from now on."""
        self._budget = budget
        budget.charge(self.size_bytes)

    def leave_budget(self) -> None:
        """This tail is not served any more: it no longer counts."""
        if self._budget is not None:
            self._budget.charge(-self.size_bytes)
            self._budget = None

    def _charge(self, change_bytes: int) -> None:
        self.size_bytes += change_bytes
        if self._budget is not None:
            self._budget.charge(change_bytes)

    def _find(self, offset: int) -> int:
        return max(0, bisect_right(self._bases, offset) - 1)

    def _ending_by(self, offset: int) -> int:
        """How many entries end at or below `offset`."""
        count = bisect_left(self._bases, offset)
        return count - 1 if count and self._entries[count - 1].end_offset > offset else count

    def _bytes_of(self, first: int, last: int) -> int:
        """Of the entries with indexes [first, last)."""
        if first >= last:
            return 0
        end = self._positions[last] if last < len(self._positions) else self._total_bytes
        return end - self._positions[first]
