"""The frames a crash or a stop left in the files, read on demand.

They stay in their files until they are released, so a partition's frames can be read when its owner opens it, not only at start.
The one rule: every CRC is checked again, and payloads are copies: the file may be taken into use again at any time afterwards.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from holdfast.log.wal.file_reader import WalReader, read_frame, walk
from holdfast.log.wal.file_references import FileReferences
from holdfast.log.wal.frames import FRAMES_AT, MARK, WalFrame
from holdfast.log.wal.recovery import LiveFile, PartitionKey, TornTail
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
        return self._stream(None)

    def of(self, topic_id: bytes, partition: int) -> AsyncIterator[WalFrame]:
        """The frames of one partition."""
        return self._stream((topic_id, partition))

    async def _stream(self, only: PartitionKey | None) -> AsyncIterator[WalFrame]:
        self._parts = [part for part in self._parts if part.file in self._file_references.files]
        for part in self._parts:
            if only is not None and only not in part.file.places:
                continue
            reading = self._read(part) if only is None else self._read_one(part.file, only)
            try:
                while some := await in_thread(partial(_next_chunk, reading)):
                    for frame in some:
                        yield frame
            finally:
                reading.close()

    def _read_one(self, file: LiveFile, only: PartitionKey) -> Generator[WalFrame, None, None]:
        """The frames of one partition, from where they stood when the WAL was opened."""
        try:
            with WalReader(file.path, window_bytes=_NEAR_BYTES) as reader:
                for at in file.places[only]:
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


def _next_chunk(reading: Iterator[WalFrame]) -> list[WalFrame]:
    """The next few frames: enough to make a thread worth while, few enough for memory."""
    frames: list[WalFrame] = []
    size = 0
    for frame in islice(reading, _STEP_FRAMES):
        frames.append(frame)
        size += len(frame.payload[0])
        if size >= _STEP_BYTES:
            break
    return frames
