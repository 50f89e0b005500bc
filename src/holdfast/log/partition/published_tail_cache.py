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

    def keep(self, tail: Tail, end_offset: int) -> None:
        """Everything in the tail below `end_offset` is published now."""
        size_bytes = tail.mark_published(end_offset)
        self._kept.append(_CachedTail(tail, end_offset, size_bytes))
        self.used_bytes += size_bytes
        while self.used_bytes > self.bytes_max:
            oldest = self._kept.popleft()
            oldest.tail.forget_until(oldest.end_offset)
            self.used_bytes -= oldest.size_bytes

    def drop(self, tail: Tail) -> None:
        """This tail is not read any more."""
        gone = [each for each in self._kept if each.tail is tail]
        if gone:
            self._kept = deque(each for each in self._kept if each.tail is not tail)
            self.used_bytes -= sum(each.size_bytes for each in gone)
