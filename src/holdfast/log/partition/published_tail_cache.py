"""The published tail cache: what was published last stays in memory, for readers who are close behind.

A reader a second behind should not have to fetch it from object storage. One budget for all partitions of an agent; the oldest goes
first. Nothing depends on it: an entry may go at any time.
"""

from collections import deque
from typing import NamedTuple

from holdfast.log.partition.tail import Tail
from holdfast.vocabulary.settings import check_at_least


class _CachedTail(NamedTuple):
    tail: Tail
    end_offset: int
    size_bytes: int


class PublishedTailCache:
    """Published batches that tails still hold."""

    def __init__(self, bytes_max: int) -> None:
        check_at_least("afterglow_bytes_max", bytes_max, 0)
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._kept: deque[_CachedTail] = deque()
        self._bytes_of: dict[Tail, int] = {}  # of the tails that are not dropped
        self._dropped = 0  # entries of tails that are

    @property
    def entries(self) -> int:
        """How many publications it remembers, those of dropped tails included."""
        return len(self._kept)

    def keep(self, tail: Tail, end_offset: int) -> None:
        """Everything in the tail below `end_offset` is published now."""
        size_bytes = tail.mark_published(end_offset)
        self._kept.append(_CachedTail(tail, end_offset, size_bytes))
        self._bytes_of[tail] = self._bytes_of.get(tail, 0) + size_bytes
        self.used_bytes += size_bytes
        while self.used_bytes > self.bytes_max:
            self._forget_oldest()

    def drop(self, tail: Tail) -> None:
        """This tail is not read any more."""
        if tail not in self._bytes_of:
            return
        self.used_bytes -= self._bytes_of.pop(tail)
        self._dropped += 1
        # Its entries go now and then, many at a time: ten thousand tails are dropped one after the other.
        if 2 * self._dropped >= len(self._bytes_of):
            self._kept = deque(each for each in self._kept if each.tail in self._bytes_of)
            self._dropped = 0

    def _forget_oldest(self) -> None:
        oldest = self._kept.popleft()
        if oldest.tail not in self._bytes_of:
            return
        oldest.tail.forget_until(oldest.end_offset)
        self.used_bytes -= oldest.size_bytes
        self._bytes_of[oldest.tail] -= oldest.size_bytes
        if not self._bytes_of[oldest.tail]:
            del self._bytes_of[oldest.tail]
