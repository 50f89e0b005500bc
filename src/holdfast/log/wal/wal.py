"""The write-ahead log of one agent: appends of all its partitions, durable together, found again after any crash.

The one rule: a future that `append` returned is resolved after its frame was synced, and frames are on disk in the order of the
calls. The WAL never reads payloads and never drops a frame before `release` was called for it.

What a caller must do, in this order: read `recovered` before appending to the same partitions; `await room(bytes)` and then call
`append` without awaiting in between; leave the payload's memory unchanged until the future is done; `release` what is published.
When an append fails, those queued behind it failed with it: offsets given to them are free again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.log.model import OnDurable
from holdfast.log.wal.append_queue import CommitGroup, PendingAppend
from holdfast.log.wal.copy_forward import copy_forward
from holdfast.log.wal.disk import WalDisk
from holdfast.log.wal.file_references import FileReferences
from holdfast.log.wal.file_worker import FileWorker
from holdfast.log.wal.files import OpenFile, WalFiles
from holdfast.log.wal.frames import FRAME_BYTES, ORIGIN_BYTES, WalFrame, checked_bytes
from holdfast.log.wal.in_flight import InFlightLimit
from holdfast.log.wal.recovered_frames import RecoveredFrames, in_thread
from holdfast.log.wal.recovery import LiveFile, PartitionKey
from holdfast.log.wal.repair import read_repairs
from holdfast.log.wal.repairs import LossesOfRepairs
from holdfast.log.wal.settings import WalSettings
from holdfast.log.wal.startup import OpenedWal, open_directory
from holdfast.log.wal.writer import WalWriter, WriterCallbacks
from holdfast.vocabulary.clock import Clock, stopwatch_ns
from holdfast.vocabulary.errors import ClosedError, CorruptError, HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.histogram import COUNT_BOUNDS, Histogram
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class WalStats:
    """Counters since the WAL was opened."""

    groups: int = 0
    frames: int = 0
    bytes: int = 0
    fsyncs: int = 0
    stalls: int = 0  # appends that had to wait in `room`
    refused: int = 0  # appends that failed because the disk was full
    rolls: int = 0
    recycled: int = 0
    copied_frames: int = 0  # copied forward, out of files that could then be used again
    copied_bytes: int = 0


class WalHistograms:
    """What group commits took, and how large they were."""

    __slots__ = ("group_batches", "to_loop_s", "to_writer_s", "write_s")

    def __init__(self) -> None:
        self.group_batches = Histogram(COUNT_BOUNDS)
        self.to_writer_s, self.write_s, self.to_loop_s = Histogram(), Histogram(), Histogram()

    def observe(self, group: CommitGroup) -> None:
        """Count a group that the loop was just told of."""
        self.group_batches.observe(sum(entry.frame.batch_count for entry in group.entries))
        self.to_writer_s.observe(group.handover_ns / 1e9)
        self.write_s.observe(group.write_ns / 1e9)
        self.to_loop_s.observe((stopwatch_ns() - group.synced_at_ns) / 1e9)


class Wal:
    """See the module. `open` is the way in."""

    def __init__(
        self,
        opened: OpenedWal,
        file_worker: FileWorker,
        writer: WalWriter,
        repairs: LossesOfRepairs,
        settings: WalSettings,
    ) -> None:
        self.directory = opened.files.directory
        self.stats = WalStats()
        self.histograms = WalHistograms()
        # The error that stopped the WAL, once there is one. The body of `open` is cancelled and `open` raises it.
        self.failed: asyncio.Future[HoldfastError] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._opened, self._file_worker, self._writer, self._settings = opened, file_worker, writer, settings
        live = opened.recovered
        self._file_references = FileReferences(live if opened.current_live in live else [*live, opened.current_live])
        self.recovered = RecoveredFrames(self._file_references, live, opened.torn, settings.read_bytes)
        self.repairs = repairs
        self.synced_lsn = opened.next_lsn - 1
        self._room = InFlightLimit(settings.in_flight_bytes_max)
        self._payload_bytes_max = settings.payload_bytes_max
        # The largest payload of one frame of a replica: a copy of it has to carry its first LSN.
        self.replicated_bytes_max = self._payload_bytes_max - ORIGIN_BYTES
        self._error: HoldfastError | None = None
        self._copy_wanted = asyncio.Event()
        self._full = False  # appends are refused, or were and no file has been begun since

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        directory: Path,
        *,
        clock: Clock,
        random: Random,
        settings: WalSettings | None = None,
        disk: WalDisk | None = None,
        writer: type[WalWriter] = WalWriter,
        file_worker: type[FileWorker] = FileWorker,
    ) -> AsyncIterator["Wal"]:
        """The WAL in `directory`, for the body; leaving waits until what was appended is durable.

        `writer` and `file_worker` are its two threads; a simulation replaces them by ones that run on its loop.

        Raises `UnavailableError` if another process has it open or the disk is full, and `CorruptError` with file and position
        if something that was synced cannot be read. A failed sync cancels the body and is raised as `CorruptError`.
        """
        settings, disk = settings or WalSettings(), disk or WalDisk()
        files = WalFiles(directory, clock=clock, random=random, settings=settings, disk=disk)
        opening = partial(_open, files, settings=settings, disk=disk)
        began_ms = clock.boot_ms()
        opened, repairs = await in_thread(opening, undo=lambda both: both[0].abandon())
        _log_recovery(opened, clock.boot_ms() - began_ms)
        worker = file_worker()
        wal = cls(
            opened,
            worker,
            writer(opened, worker, clock=clock, settings=settings, disk=disk),
            repairs,
            settings,
        )
        async with wal._running():
            with _stopped_by(wal.failed):
                yield wal

    @property
    def full(self) -> bool:
        """Whether appends were refused, and there is still no room for another file. A quota below that is not seen."""
        return self._full and not self._opened.files.has_room()

    def append(self, frame: WalFrame) -> "asyncio.Future[int]":
        """Queue `frame`; the future is its LSN once it is durable. Fails as `append_with_callback` does."""
        return self._append_future(frame)

    def _append_future(self, frame: WalFrame, source: LiveFile | None = None) -> "asyncio.Future[int]":
        answer: asyncio.Future[int] = self._loop.create_future()

        def on_durable(error: BaseException | None) -> None:
            if answer.done():
                return  # cancelled
            if error is None:
                answer.set_result(self.synced_lsn)
            else:
                answer.set_exception(error)

        self._append(frame, on_durable, source)
        return answer

    def append_copy(self, frame: WalFrame, source: LiveFile) -> "asyncio.Future[int]":
        """Append a frame of an older file once more. For `copy_forward`."""
        return self._append_future(frame, source)

    def append_with_callback(self, frame: WalFrame, on_durable: OnDurable) -> None:
        """Queue `frame`; `on_durable` is called once it is durable, when `synced_lsn` is its LSN, or has failed.

        `UnavailableError`: the disk is full, nothing was written, try again. `CorruptError`: the outcome is unknown and the
        process must stop. Raises at once if the frame is invalid or the WAL closed or stopped.
        """
        self._append(frame, on_durable)

    def _append(self, frame: WalFrame, on_durable: OnDurable, source: LiveFile | None = None) -> None:
        if self._error is not None:
            raise self._error
        bytes_max = self._payload_bytes_max
        if source is None:
            size, origin_lsn = checked_bytes(frame, bytes_max), 0
        else:
            size, origin_lsn = checked_bytes(frame, bytes_max), frame.origin_lsn or frame.lsn
            if size - FRAME_BYTES > self.replicated_bytes_max:
                origin_lsn = 0  # a file has no space for it, and nobody needs it
            else:
                size += ORIGIN_BYTES
        self._room.enter(size)
        self._writer.push(PendingAppend(frame, size, on_durable, source, origin_lsn))

    def has_room(self, size_bytes: int) -> bool:
        """Whether `room` would return at once."""
        return self._error is None and self._room.is_free(size_bytes)

    async def room(self, size_bytes: int) -> None:
        """Return when `size_bytes` more may be in flight. Append right afterwards."""
        await self._room.wait(size_bytes)

    def release(self, topic_id: bytes, partition: int, below_offset: int) -> None:
        """Nothing of the partition below `below_offset` is needed from the WAL any more.

        A file is used again once all in it is released. Frames that are still in flight are not affected.
        """
        self._retire(self._file_references.release((topic_id, partition), below_offset))
        self._check_files()

    @property
    def in_flight_bytes(self) -> int:
        """What was appended and is not yet durable."""
        return self._room.in_flight_bytes

    @property
    def live_bytes(self) -> int:
        """What the files occupy that hold unreleased frames; `holding_oldest` are the partitions that keep them."""
        return self._file_references.live_bytes

    def holding_oldest(self) -> frozenset[PartitionKey]:
        """The partitions, as (topic id, number), that keep the oldest file from being used again."""
        return self._file_references.holding_oldest()

    def unreleased(self) -> dict[PartitionKey, int]:
        """(topic id, number) of each partition with frames in the WAL, and its end offset there."""
        return self._file_references.unreleased()

    def file_of(self, lsn: int) -> Path | None:
        """The file that holds a frame; None if it is not in a live one."""
        found = [file.path for file in self._file_references.files if file.first_lsn <= lsn]
        return found[-1] if found else None

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        self._file_worker.start()
        ended = self._writer.start(WriterCallbacks(self._rolled, self._synced, self._refused, self._stopped))
        self._retire(self._file_references.free())
        try:
            async with background_tasks(self._copy_forward()):
                yield
        finally:
            self._error = self._error or ClosedError(f"WAL {self.directory}")
            self._writer.close()
            await asyncio.shield(ended)
            self._room.shut(self._error)
            await in_thread(self._end)
        if self.failed.done():
            raise self.failed.result()

    def _end(self) -> None:
        self._file_worker.stop()
        self._writer.drop_prepared()
        self._opened.lock.release()

    def _synced(self, group: CommitGroup) -> None:
        self.histograms.observe(group)
        current, stats = self._file_references.current, self.stats
        needed, sizes = current.needed, current.sizes
        for at, (frame, size, _, source, _) in enumerate(group.entries):
            key, end_offset = (frame.topic_id, frame.partition), frame.base_offset + frame.count
            if source is None:
                needed[key] = max(end_offset, needed.get(key, 0))  # a replicated log may go back
                sizes[key] = sizes.get(key, 0) + size
            else:
                self._file_references.copied(key, end_offset, size, group.positions[at], source)
                stats.copied_frames += 1
                stats.copied_bytes += size
        stats.groups += 1
        stats.fsyncs += 1
        stats.frames += len(group.entries)
        stats.bytes += group.size
        stats.stalls = self._room.stalls
        self._room.leave(group.size)
        for lsn, entry in enumerate(group.entries, group.first_lsn):
            self.synced_lsn = lsn
            self._call_back(entry, None)

    def _call_back(self, entry: PendingAppend, error: HoldfastError | None) -> None:
        try:
            entry.on_durable(error)
        except Exception:  # the appends behind it must be called back all the same
            _log.exception("append callback for LSN %d of WAL %s raised", self.synced_lsn, self.directory)

    def _rolled(self, file: OpenFile, first_lsn: int) -> None:
        self._file_references.rolled(LiveFile(file.path, file.header, first_lsn, first_lsn))
        self.stats.rolls += 1
        self.stats.fsyncs += 1
        if self._full:
            self._full = False
            _log.info("WAL %s has space again", self.directory)
        self._retire(self._file_references.free())  # all in the file before may have been released while it was written
        self._check_files()

    def _refused(self, taken: list[PendingAppend], error: UnavailableError) -> None:
        if not self._full:  # logged once, however often producers try
            self._full = True
            _log.error("appends are refused: %s", error)
        self._fail(taken, error)
        self._writer.resume()

    def _stopped(self, taken: list[PendingAppend], error: HoldfastError) -> None:
        self._give_up(error)
        self._fail(taken, error)

    def _give_up(self, error: HoldfastError) -> None:
        self._error = error
        self._room.shut(error)
        if not self.failed.done():
            self.failed.set_result(error)

    def _fail(self, taken: list[PendingAppend], error: HoldfastError) -> None:
        """Those queued behind fail as well: a later offset of a partition must not overtake one that failed."""
        entries = [*taken, *self._writer.queue.take_all()]  # the writer stands still until this is done
        if isinstance(error, UnavailableError):
            self.stats.refused += len(entries)
        self._room.leave(sum(entry.size for entry in entries))
        for entry in entries:
            self._call_back(entry, type(error)(*error.args))

    def _check_files(self) -> None:
        if len(self._file_references.files) > self._settings.copy_forward_files:
            self._copy_wanted.set()

    async def _copy_forward(self) -> None:
        """Copy what keeps old files forward, whenever there are too many of them, until cancelled."""
        references, settings = self._file_references, self._settings
        while True:
            await self._copy_wanted.wait()
            self._copy_wanted.clear()
            while (source := references.copy_source(settings.copy_forward_files)) is not None:
                try:
                    await copy_forward(source, references, self, settings)
                except (UnavailableError, OSError) as error:
                    if source in references.files:
                        _log.info("WAL file %s is kept for now: %s", source.path, error)
                        break  # until a file is begun or something is released
                except (CorruptError, InvalidError) as error:  # `InvalidError`: files were larger before
                    if source in references.files:
                        # Its partition finds out when it is recovered; the others lose nothing but disk space.
                        _log.error("WAL file %s and those after it are kept: %s", source.path, error)
                        return
                # A file that was released meanwhile may be gone or in use again: then there was nothing to copy.
                self._retire(references.moved(source))

    def _retire(self, files: list[LiveFile]) -> None:
        for file in files:
            done = self._file_worker.submit(partial(self._opened.files.retire, file.path))
            done.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._retired, done.exception()))

    def _retired(self, error: BaseException | None) -> None:
        if error is None:
            self.stats.recycled += 1
        else:
            self._give_up(CorruptError(f"WAL {self.directory}", f"a file cannot be used again: {error}"))


def _open(files: WalFiles, *, settings: WalSettings, disk: WalDisk) -> tuple[OpenedWal, LossesOfRepairs]:
    """In one go: whoever is cancelled or fails in between gives the directory back."""
    opened = open_directory(files, settings=settings, disk=disk)
    try:
        return opened, LossesOfRepairs(read_repairs(files.directory))
    except BaseException:
        opened.abandon()
        raise


def _log_recovery(opened: OpenedWal, took_ms: int) -> None:
    frames = sum(file.frames for file in opened.recovered)
    if frames:
        partitions = len({partition for file in opened.recovered for partition in file.needed})
        torn = "" if opened.torn is None else ", the last write was torn and is discarded"
        _log.info(
            "WAL %s recovered: %d frames of %d partitions in %d ms%s",
            opened.files.directory,
            frames,
            partitions,
            took_ms,
            torn,
        )


@contextmanager
def _stopped_by(failed: "asyncio.Future[HoldfastError]") -> Iterator[None]:
    """Cancel the body when `failed` is done, and raise what it holds, whatever else ends the body with it."""
    body, inside, cancelled = asyncio.current_task(), True, False
    assert body is not None
    cancelled_before = body.cancelling()

    def stop(_: object) -> None:
        nonlocal cancelled
        if inside:
            cancelled = body.cancel()

    failed.add_done_callback(stop)
    try:
        yield
    except BaseException as error:
        if not failed.done():
            raise
        if cancelled and body.uncancel() > cancelled_before and isinstance(error, asyncio.CancelledError):
            raise  # somebody else has cancelled it, too
        raise failed.result() from (None if isinstance(error, asyncio.CancelledError) else error)
    finally:
        inside = False
