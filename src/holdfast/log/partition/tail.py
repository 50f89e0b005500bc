"""The tail: batches that are not yet in object storage, and before them some that only just are, in offset order, in RAM.

Reading is a bisect; forgetting is amortised (a list with a moving first index, compacted in large steps: deleting from the front
of a long list one by one collapses throughput). The tail does not track durability: callers pass up to where they may read.
"""

from bisect import bisect_right
from typing import NamedTuple

from holdfast.log.batches import BatchHeader, Buffer
from holdfast.log.partition.tail_budget import TailBudget


class TailBatch(NamedTuple):
    """One batch, patched, where it arrived or copied out."""

    base_offset: int
    end_offset: int
    data: Buffer
    header: BatchHeader


class Tail:
    """Batches [`start`, `end`), contiguous but for gaps that were never appended."""

    __slots__ = (
        "_bases",
        "_batches",
        "_budget",
        "_first",
        "_unpublished",
        "end",
        "size_bytes",
        "start",
    )

    def __init__(self, start: int) -> None:
        self._budget: TailBudget | None = None
        self._bases: list[int] = []
        self._batches: list[TailBatch] = []
        self._first = 0
        self._unpublished = 0  # the index of the first batch that object storage does not have
        self.start = self.end = start
        self.size_bytes = 0  # of what is not published

    def append(self, batch: TailBatch) -> None:
        """Add the next batch."""
        self._bases.append(batch.base_offset)
        self._batches.append(batch)
        self.end = batch.end_offset
        self._charge(len(batch.data))

    def read(self, offset: int, *, below: int, bytes_max: int) -> list[Buffer]:
        """Whole batches from the one that holds `offset`, ending below `below`; at least one if there is one."""
        found: list[Buffer] = []
        size = 0
        for at in range(self._find(offset), len(self._batches)):
            batch = self._batches[at]
            if batch.end_offset <= offset:
                continue  # the offset lies in a gap behind it
            if batch.end_offset > below or (found and size + len(batch.data) > bytes_max):
                break
            found.append(batch.data)
            size += len(batch.data)
        return found

    def between(self, start: int, end: int) -> list[TailBatch]:
        """The batches that lie in [start, end)."""
        return [
            batch
            for batch in self._batches[self._find(start) :]
            if start <= batch.base_offset and batch.end_offset <= end
        ]

    def mark_published(self, offset: int) -> int:
        """Batches that end at or below `offset` are in object storage, and no longer count; how many bytes they are.

        They can still be read, until they are forgotten.
        """
        before = self.size_bytes
        while self._unpublished < len(self._batches) and self._batches[self._unpublished].end_offset <= offset:
            self._charge(-len(self._batches[self._unpublished].data))
            self._unpublished += 1
        return before - self.size_bytes

    def forget_until(self, offset: int) -> None:
        """Drop batches that end at or below `offset`."""
        self.mark_published(offset)
        while self._first < len(self._batches) and self._batches[self._first].end_offset <= offset:
            # Emptied, because the slab it lies in must not wait for the compaction below.
            self._batches[self._first] = self._batches[self._first]._replace(data=b"")
            self._first += 1
        self.start = max(self.start, min(offset, self.end))
        if self._first == len(self._batches) or (self._first > 1_024 and self._first * 2 > len(self._batches)):
            del self._bases[: self._first], self._batches[: self._first]
            self._unpublished -= self._first
            self._first = 0

    def cut_from(self, offset: int) -> None:
        """Drop batches from `offset` on: they were never made durable."""
        at = bisect_right(self._bases, offset - 1)
        for batch in self._batches[at:]:
            self._charge(-len(batch.data))
        del self._bases[at:], self._batches[at:]
        self.end = offset

    def first_at_or_after(self, timestamp_ms: int, *, below: int) -> TailBatch | None:
        """The first batch that may hold a record with a timestamp of at least `timestamp_ms`."""
        for batch in self._batches[self._first :]:
            if batch.end_offset > below:
                return None
            if batch.header.max_timestamp >= timestamp_ms:
                return batch
        return None

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
        return max(self._first, bisect_right(self._bases, offset) - 1)
