"""The frames a crash or a stop left in the files, read on demand.

They stay in their files, or copies of them in later ones, until they are released, so a partition's frames can be read when its
owner opens it, not only at start. Copies come behind later frames, and may come besides what they were copied from.
The one rule: every CRC is checked again, and payloads are copies: the file may be taken into use again at any time afterwards.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from holdfast.log.wal.file_reader import WalReader, read_frame, walk
from holdfast.log.wal.file_references import FileReferences
from holdfast.log.wal.frames import FRAMES_AT, MARK, WalFrame
from holdfast.log.wal.recovery import LiveFile, TornTail
from holdfast.vocabulary.errors import CorruptError

T = TypeVar("T")

_STEP_FRAMES: Final = 4096
_STEP_BYTES: Final = 4 << 20
_NEAR_BYTES: Final = 64 << 10  # a partition's frames stand far apart: what is read between them is wasted


async def in_thread(work: Callable[[], T], *, undo: Callable[[T], None] = lambda _: None) -> T:
    """Blocking work off the loop. If the caller is cancelled, it is still waited for, and its result undone."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            undo(task.result())
        raise


class _FilePart(NamedTuple):
    """What a file held when the WAL was opened."""

    file: LiveFile
    frames: int


class RecoveredFrames:
    """Iterate over it (`async for`) for all frames in the order of their LSNs, or over `of(...)` for one partition's."""

    def __init__(
        self, file_references: FileReferences, files: list[LiveFile], torn: TornTail | None, read_bytes: int
    ) -> None:
        self.torn = torn  # what the crash left unfinished; it was never acknowledged
        self.frames = sum(file.frames for file in files)  # marks included
        self._file_references = file_references
        self._read_bytes = read_bytes
        self._parts = [_FilePart(file, file.frames) for file in files]

    def __aiter__(self) -> AsyncIterator[WalFrame]:
        return self._stream()

    async def of(self, topic_id: bytes, partition: int) -> AsyncIterator[WalFrame]:
        """The frames of one partition. A file that is copied forward meanwhile is read on in the file with the copies."""
        only, seen = (topic_id, partition), set[LiveFile]()
        files = self._file_references.files
        while (file := next((each for each in files if only in each.places and each not in seen), None)) is not None:
            seen.add(file)
            async for frame in _in_chunks(self._read_one(file, file.places[only])):
                yield frame

    async def _stream(self) -> AsyncIterator[WalFrame]:
        self._parts = [part for part in self._parts if part.file in self._file_references.files]
        for part in self._parts:
            async for frame in _in_chunks(self._read(part)):
                yield frame

    def _read_one(self, file: LiveFile, places: "array[int]") -> Generator[WalFrame, None, None]:
        """The frames of one partition, from where they stood when the WAL was opened, or were copied to since."""
        try:
            with WalReader(file.path, window_bytes=_NEAR_BYTES) as reader:
                for at in places:
                    found = read_frame(reader, file.header.mark, at)
                    if found is None:
                        self._missing(file, at, "a frame")
                        return
                    head, payload = found
                    yield head.frame(bytes(payload))
        except FileNotFoundError:
            self._missing(file, FRAMES_AT, "the file")

    def _missing(self, file: LiveFile, at: int, what: str) -> None:
        # A file that was released meanwhile may be gone or in use again; the rest of it is not needed.
        if file in self._file_references.files:
            raise CorruptError(f"WAL file {file.path} at byte {at}", f"{what} became unreadable")

    def _read(self, part: _FilePart) -> Generator[WalFrame, None, None]:
        file, seen, last_at = part.file, 0, FRAMES_AT
        try:
            with WalReader(file.path, window_bytes=self._read_bytes) as reader:
                walking = walk(reader, file.header.mark, FRAMES_AT, file.first_lsn)
                for at, head, payload in islice(walking, part.frames):
                    seen, last_at = seen + 1, at
                    if head.kind != MARK:
                        yield head.frame(bytes(payload))
        except FileNotFoundError:
            pass
        # A file that was released meanwhile may be gone or in use again; the rest of it is not needed.
        if seen < part.frames and file in self._file_references.files:
            raise CorruptError(
                f"WAL file {file.path} after byte {last_at}", f"{part.frames - seen} frames became unreadable"
            )


async def _in_chunks(reading: Generator[WalFrame, None, None]) -> AsyncIterator[WalFrame]:
    """What is read on threads, a chunk at a time."""
    try:
        more = True
        while more:
            some, more = await in_thread(partial(_next_step, reading))
            for frame in some:
                yield frame
    finally:
        reading.close()


def _next_step(reading: Iterator[WalFrame]) -> tuple[list[WalFrame], bool]:
    """The next few frames, and whether there may be more: most partitions have few, and one thread's turn is enough."""
    frames = next_chunk(reading, _STEP_BYTES)
    size = sum(len(frame.payload[0]) for frame in frames)
    return frames, len(frames) == _STEP_FRAMES or size >= _STEP_BYTES


def next_chunk(reading: Iterator[WalFrame], bytes_min: int) -> list[WalFrame]:
    """The next few frames: enough to make a thread worth while, few enough for memory."""
    frames: list[WalFrame] = []
    size = 0
    for frame in islice(reading, _STEP_FRAMES):
        frames.append(frame)
        size += len(frame.payload[0])
        if size >= bytes_min:
            break
    return frames
