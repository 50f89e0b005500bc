"""Messages that are popped next, in the order in which they are, in a file.

Priorities scatter what comes next over the whole log, so that a round of reading ahead (`read_ahead`) costs a read of most of it.
Once is enough for many rounds: what they need is copied into buckets, the best in the first, and each is read in one piece.

The one rule: it is a copy, of this process alone, in a file without a name. Whatever goes wrong with it, the log has everything.
"""

import asyncio
import os
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.heap.picks import BUCKET_BITS, WORD_BYTES, bucket_counts
from holdfast.log.batches import Buffer, pick_records
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tasks import LoopTurns

_READ_BYTES: Final = MIB
_WRITE_BYTES: Final = 16 * MIB  # in memory until they are written
WORTH_BYTES: Final = 64 * KIB  # of a bucket for each message of it that is needed
_FREE: Final = 4  # at most this part of what is free on the disk: the WAL is there, too


class SpillSpace:
    """What all partitions of a process may keep in files. Without a directory there is none."""

    def __init__(self, directory: Path | None = None, bytes_max: int = 0) -> None:
        self.directory, self.bytes_max, self.bytes = directory, bytes_max, 0

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

    def close(self) -> None:
        """Nothing of it is needed any more."""
        if not self._closed:
            self._closed = True
            self._space.bytes -= self._bytes

    def buckets(self, words: bytes) -> list[int]:
        """The buckets that are worth reading for these, the best first: a few of one are sooner read from the log."""
        found = bucket_counts(self._words, words)
        return [bucket for bucket, size in enumerate(self._sizes) if size and found[bucket] * WORTH_BYTES >= size]

    async def read(self, bucket: int) -> AsyncIterator[bytes]:
        """The records of a bucket, as they were picked, in pieces. `OSError`, `CorruptError`."""
        for together in _together(self._buckets[bucket]):
            for piece in await asyncio.to_thread(_read, self._file, together):
                yield piece

    async def _copy(self, log: OwnedPartition, went_on: Callable[[], None]) -> None:
        turns, at, count = LoopTurns(), 0, len(self._words) // WORD_BYTES
        words = memoryview(self._words).cast("Q")
        buffers = [bytearray() for _ in self._buckets]
        while at < count:
            place = max(words[at] >> BUCKET_BITS, log.start_offset)
            if place >= log.high_watermark:
                break
            fetched = await log.read(place, bytes_max=_READ_BYTES)
            begun = at
            for batch in fetched.batches:
                at = pick_records(batch, self._words, at, buffers)
                went_on()
                await turns.next()
                if not await self._write_large(buffers):
                    return
            at = max(at, begun + 1)  # a record that is not there is the business of those who need it
        await self._write(buffers)

    async def _write_large(self, buffers: list[bytearray]) -> bool:
        """Write what has become large: all if it is much together, or buckets by themselves; whether there was space."""
        much = sum(map(len, buffers)) >= _WRITE_BYTES
        written = [buffer if much or len(buffer) >= _READ_BYTES else bytearray() for buffer in buffers]
        if not any(written):
            return True
        for bucket, buffer in enumerate(written):
            if buffer:
                buffers[bucket] = bytearray()
        return await self._write(written)

    async def _write(self, buffers: Sequence[bytearray]) -> bool:
        """Write what was picked, each bucket as one extent; whether there was space."""
        size = sum(map(len, buffers))
        if size > self._space.free_bytes():
            return False
        start, self._bytes = self._bytes, self._bytes + size
        self._space.bytes += size
        extents = await asyncio.to_thread(_write, self._file, buffers, start)
        for bucket, extent in enumerate(extents):
            if extent.size:
                self._buckets[bucket].append(extent)
                self._sizes[bucket] += extent.size
        return True


def _together(extents: Iterable[_Extent]) -> Iterator[list[_Extent]]:
    """As many as are read in one go: all of a bucket may be more than there is room for."""
    found, size = list[_Extent](), 0
    for extent in extents:
        if found and size + extent.size > _READ_BYTES:
            yield found
            found, size = [], 0
        found.append(extent)
        size += extent.size
    if found:
        yield found


def _write(file: _Descriptor, buffers: Sequence[Buffer], at: int) -> list[_Extent]:
    extents = []
    for buffer in buffers:
        extents.append(_Extent(at, len(buffer), zlib.crc32(buffer)))
        rest = memoryview(buffer)
        while rest:
            written = os.pwrite(file.number, rest, at)
            rest, at = rest[written:], at + written
    return extents


def _read(file: _Descriptor, extents: Sequence[_Extent]) -> list[bytes]:
    found = [os.pread(file.number, size, at) for at, size, _ in extents]
    for data, extent in zip(found, extents, strict=True):
        if len(data) != extent.size or zlib.crc32(data) != extent.crc:
            raise CorruptError("messages that were read ahead", f"{extent.size} bytes at {extent.at} of their file")
    return found
