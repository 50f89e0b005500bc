"""Messages that are popped next, in the order in which they are, in a file.

Priorities scatter what comes next over the whole log, so that a round of reading ahead (`read_ahead`) costs a read of most of it.
Once is enough for many rounds: what they need is copied into buckets, the best in the first, and each is read in one piece.

The one rule: it is a copy, of this process alone, in a file without a name. Whatever goes wrong with it, the log has everything.
"""

import asyncio
import os
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.heap.picks import BUCKET_BITS, WORD_BYTES, bucket_counts
from holdfast.log.batches import Buffer, PickedExtents, parse_header, pick_extents
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tasks import LoopTurns

_READ_BYTES: Final = MIB
_PIECE_BYTES: Final = 256 * KIB  # that one turn of the loop has to do with
_WRITE_BYTES: Final = 8 * MIB  # of the log that are in memory until what is picked of them is written
WORTH_BYTES: Final = 64 * KIB  # of a bucket for each message of it that is needed
_FREE: Final = 4  # at most this part of what is free on the disk: the WAL is there, too


class SpillSpace:
    """What all partitions of a process may keep in files. Without a directory there is none.

    `idle_ms`: after so long files that nobody pops from are given up.
    """

    def __init__(self, directory: Path | None = None, bytes_max: int = 0, idle_ms: float = 300_000) -> None:
        self.directory, self.bytes_max, self.bytes, self.idle_ms = directory, bytes_max, 0, idle_ms

    def free_bytes(self) -> int:
        """How much more may be written."""
        if self.directory is None or self.bytes >= self.bytes_max:
            return 0
        try:
            return min(self.bytes_max - self.bytes, shutil.disk_usage(self.directory).free // _FREE)
        except OSError:  # nowhere to put anything
            return 0


class _Extent(NamedTuple):
    """Records of one bucket that are together in the file."""

    at: int
    size: int
    crc: int


class _Descriptor:
    """An open file; closed when nobody has it any more, threads included."""

    def __init__(self, directory: Path) -> None:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            self.number = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class PayloadSpill:
    """Records of one partition. `words` says which, and their buckets; some may be missing."""

    def __init__(self, space: SpillSpace, words: bytes, buckets: int) -> None:
        assert space.directory is not None
        self._space, self._words = space, words
        self._file = _Descriptor(space.directory)
        self._buckets: list[list[_Extent]] = [[] for _ in range(buckets)]
        self._sizes = [0] * buckets
        self._bytes = 0
        self._closed = False

    @classmethod
    async def of(
        cls, log: OwnedPartition, space: SpillSpace, words: bytes, buckets: int, *, went_on: Callable[[], None]
    ) -> "PayloadSpill":
        """Copy what words say from the log, as long as there is space. `OSError`, and what reading raises.

        `went_on` is called after each part of the work.
        """
        spill = await asyncio.to_thread(cls, space, words, buckets)
        try:
            await spill._copy(log, went_on)
        except BaseException:
            spill.close()
            raise
        return spill

    @property
    def size_bytes(self) -> int:
        """How many bytes the file has."""
        return self._bytes

    def close(self) -> None:
        """Nothing of it is needed any more."""
        if not self._closed:
            self._closed = True
            self._space.bytes -= self._bytes

    def buckets(self, words: bytes) -> list[int]:
        """The buckets that are worth reading for these, the best first: a few of one are sooner read from the log."""
        found = bucket_counts(self._words, words)
        return [bucket for bucket, size in enumerate(self._sizes) if size and found[bucket] * WORTH_BYTES >= size]

    async def read(self, buckets: Iterable[int]) -> AsyncIterator[bytes]:
        """The records of buckets, as they were picked, in pieces. `OSError`, `CorruptError`."""
        extents = [extent for bucket in buckets for extent in self._buckets[bucket]]
        for together in _together(extents, _READ_BYTES):
            for piece in await asyncio.to_thread(_read, self._file, list(_together(together, _PIECE_BYTES))):
                yield piece

    async def _copy(self, log: OwnedPartition, went_on: Callable[[], None]) -> None:
        turns, at, count = LoopTurns(), 0, len(self._words) // WORD_BYTES
        words = memoryview(self._words).cast("Q")
        while at < count:
            place = max(words[at] >> BUCKET_BITS, log.start_offset)
            if place >= log.high_watermark:
                break
            begun, batches, size = at, list[Buffer](), 0
            while size < _WRITE_BYTES and place < log.high_watermark:
                fetched = await log.read(place, bytes_max=_READ_BYTES)
                if not fetched.batches:
                    break
                batches += fetched.batches
                size += fetched.size_bytes
                went_on()
                await turns.next()
                following = bisect_left(words, parse_header(batches[-1]).last_offset + 1 << BUCKET_BITS, at)
                if following == count:
                    break
                place = words[following] >> BUCKET_BITS
            while batches:
                picked = await asyncio.to_thread(
                    pick_extents, batches, self._words, at, _READ_BYTES, payload_bytes_max=_WRITE_BYTES
                )
                at, batches = picked.at, batches[picked.batches :]
                went_on()
                if not await self._write(picked):
                    return
            at = max(at, begun + 1)  # a record that is not there is the business of those who need it

    async def _write(self, picked: PickedExtents) -> bool:
        """Write what was picked; whether there was space."""
        size = len(picked.data)
        if size > self._space.free_bytes():
            return False
        start, self._bytes = self._bytes, self._bytes + size
        self._space.bytes += size
        await asyncio.to_thread(_write, self._file, picked.data, start)
        for bucket, extent_bytes, crc in picked.extents:
            self._buckets[bucket].append(_Extent(start, extent_bytes, crc))
            self._sizes[bucket] += extent_bytes
            start += extent_bytes
        return True


def _together(extents: Iterable[_Extent], bytes_max: int) -> Iterator[list[_Extent]]:
    """As many as are read in one go: all of a bucket may be more than there is room for."""
    found, size = list[_Extent](), 0
    for extent in extents:
        if found and size + extent.size > bytes_max:
            yield found
            found, size = [], 0
        found.append(extent)
        size += extent.size
    if found:
        yield found


def _write(file: _Descriptor, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file.number, rest, at)
        rest, at = rest[written:], at + written


def _read(file: _Descriptor, pieces: Iterable[Sequence[_Extent]]) -> list[bytes]:
    """Each piece as one."""
    return [b"".join([_read_extent(file, extent) for extent in extents]) for extents in pieces]


def _read_extent(file: _Descriptor, extent: _Extent) -> bytes:
    data = os.pread(file.number, extent.size, extent.at)
    if len(data) != extent.size or crc32c(data) != extent.crc:
        raise CorruptError("messages that were read ahead", f"{extent.size} bytes at {extent.at} of their file")
    return data
