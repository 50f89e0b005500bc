"""Copying forward: the few frames that keep an old file are appended once more, so that the file can be used again.

Without it, one partition that cannot publish would keep every file since its oldest frame, whoever wrote them (docs/safety.md,
rule 23). The one rule: a file is let go when all that is needed of it is durable elsewhere. A crash before that leaves both copies,
and who recovers a partition takes either. Copies go through the same queue as every append, a bounded piece at a time.
"""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Protocol

from holdfast.log.wal.file_reader import WalReader, read_frame
from holdfast.log.wal.file_references import FileReferences
from holdfast.log.wal.frames import FRAME_BYTES, FRAMES_AT, MARK, WalFrame, decode_head
from holdfast.log.wal.recovered_frames import in_thread, next_chunk
from holdfast.log.wal.recovery import LiveFile
from holdfast.log.wal.settings import WalSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import CorruptError

_WINDOW_BYTES = 64 << 10


class CopyTarget(Protocol):
    """The WAL, as far as copying needs it."""

    async def room(self, size_bytes: int) -> None: ...

    def append_copy(self, frame: WalFrame, source: LiveFile) -> "asyncio.Future[int]": ...


async def copy_forward(source: LiveFile, references: FileReferences, wal: CopyTarget, settings: WalSettings) -> None:
    """Append everything of `source` that is needed once more; return when it is durable.

    `UnavailableError`: the disk is full; nothing is lost, and the file is kept. `CorruptError`: it cannot be read.
    """
    reading = _live_frames(source, references.end_lsn(source), references.is_live)
    failpoints.reached("wal.copy-begun")
    try:
        while some := await in_thread(partial(next_chunk, reading, settings.copy_forward_bytes)):
            await wal.room(sum(len(frame.payload[0]) + FRAME_BYTES for frame in some))
            await asyncio.gather(*(wal.append_copy(frame, source) for frame in some))
    finally:
        reading.close()
    failpoints.reached("wal.frames-copied")


def _live_frames(
    source: LiveFile, end_lsn: int, is_live: Callable[[LiveFile, tuple[bytes, int], int], bool]
) -> Generator[WalFrame, None, None]:
    """The frames that are needed, with their payloads; of the others only the heads are read."""
    mark, at, lsn = source.header.mark, FRAMES_AT, source.first_lsn
    with WalReader(source.path, window_bytes=_WINDOW_BYTES) as reader:
        while lsn < end_lsn:
            head = decode_head(reader.view(at, FRAME_BYTES), mark)
            if head is None or head.lsn != lsn:
                raise CorruptError(f"WAL file {source.path} at byte {at}", f"LSN {lsn} became unreadable")
            if head.kind != MARK and is_live(source, (head.topic_id, head.partition), head.end_offset):
                found = read_frame(reader, mark, at)
                if found is None:
                    raise CorruptError(f"WAL file {source.path} at byte {at}", f"LSN {lsn} became unreadable")
                yield found[0].frame(bytes(found[1]))  # with the LSN it had first
            at += head.size_bytes
            lsn += 1
