"""The files of a backlog (`payload_spill`): one of the best messages, and more of those among them that came since.

Without the latter, each round of reading ahead would read all of the log that was written since the first file. One is made once
that has cost as much as making one. They are few: small ones become one.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple, Protocol

from holdfast.heap.payload_spill import PayloadSpill, SpillSpace
from holdfast.heap.picks import BUCKET_BITS, WORD_BYTES, sorted_words
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.tasks import LoopTurns

_FILES: Final = 16  # more than these become fewer
_NEWER_MIN: Final = 16_384  # records that are worth a file
_COST: Final = 2  # of a file, in reads of the same part of the log
_NEAR: Final = 100  # records that are read for one that is needed

Bounds = tuple[tuple[int, int], ...]


class SpillableMessages(Protocol):
    """The messages of a partition: `partition_state.HeapState`."""

    def bounds(self, count: int, buckets: int) -> Bounds: ...
    def words_within(self, bounds: Bounds, start: int) -> Iterator[bytes]: ...


class _File(NamedTuple):
    """What it has comes from a part of the log."""

    spill: PayloadSpill
    first: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.first


class SpilledMessages:
    """The files of one leadership. `went_on` is called after each part of the work on one."""

    def __init__(
        self, log: OwnedPartition, space: SpillSpace, messages: SpillableMessages, *, went_on: Callable[[], None]
    ) -> None:
        self._log, self._space, self._messages, self._went_on = log, space, messages, went_on
        self._files: list[_File] = []
        self.end = 0  # they have what comes next of all of the log before
        self._newer_read = 0  # records of the log behind that, since the last file was made

    def __bool__(self) -> bool:
        return bool(self._files)

    @property
    def size_bytes(self) -> int:
        """Of all of them."""
        return sum(file.spill.size_bytes for file in self._files)

    def close(self) -> None:
        """Nothing of them is needed any more."""
        for file in self._files:
            file.spill.close()
        self._files.clear()
        self.end = self._newer_read = 0

    async def begin(self, count: int, buckets: int) -> None:
        """Begin again, with a file of the next `count` messages. `OSError`, and what reading the log raises."""
        self.close()
        await self._add(0, self._log.high_watermark, count, buckets)

    def are_newer(self, words: bytes) -> bool:
        """Whether most of these came since the last file."""
        return bool(self._files) and 2 * self._newer(words) >= len(words) // WORD_BYTES

    def is_behind(self, words: bytes) -> bool:
        """Whether what came since the last file is worth another one; a round is about to read these from the log."""
        if not self._files:
            return False
        records = self._log.high_watermark - self.end
        self._newer_read += min(records, self._newer(words) * _NEAR)
        return records >= _NEWER_MIN and self._newer_read >= _COST * records

    async def catch_up(self, count: int, buckets: int, records_max: int | None = None) -> None:
        """Add a file of what came since the last one, or a larger one instead of some: those of the next `count`. As `begin`.

        `records_max`: of no more records of the log than so many; the rest comes with another call.
        """
        first, end = self.end, self._log.high_watermark
        if records_max is not None:
            end = min(end, first + records_max)
        while len(self._files) > _FILES and self._files[-1].records <= _COST * (end - first):
            absorbed = self._files.pop()
            absorbed.spill.close()
            first = absorbed.first
        await self._add(first, end, count, buckets)

    async def read(self, words: bytes) -> AsyncIterator[bytes]:
        """The records of buckets that are worth reading for these, in pieces."""
        numbers = memoryview(words).cast("Q")
        for file in list(self._files):
            first, end = [bisect_left(numbers, place << BUCKET_BITS) * WORD_BYTES for place in (file.first, file.end)]
            if first < end:
                async for piece in file.spill.read(file.spill.buckets(words[first:end])):
                    yield piece

    def _newer(self, words: bytes) -> int:
        return len(words) // WORD_BYTES - bisect_left(memoryview(words).cast("Q"), self.end << BUCKET_BITS)

    async def _add(self, first: int, end: int, count: int, buckets: int) -> None:
        bounds = self._messages.bounds(count, buckets)  # as they are now: what came since may all be more urgent
        if not bounds:
            return
        turns, found = LoopTurns(), list[bytes]()
        for some in self._messages.words_within(bounds, first):
            found.append(some)
            await turns.next()
        words = await asyncio.to_thread(sorted_words, b"".join(found))
        words = words[: bisect_left(memoryview(words).cast("Q"), end << BUCKET_BITS) * WORD_BYTES]
        if words:
            spill = await PayloadSpill.of(self._log, self._space, words, len(bounds), went_on=self._went_on)
            self._files.append(_File(spill, first, end))
        self.end, self._newer_read = end, 0
