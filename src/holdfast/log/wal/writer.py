"""The writer: a thread that takes what is queued, writes it with one call and one sync, and reports it with one call.

A lone append never waits: a group is whatever was queued while the thread was busy with the group before (or came within
`group_wait_ms`, if that is set). The one rule: callbacks run after the sync, in the order of the appends, and never before.

Most groups are written by the queue itself, in native code and without the interpreter: a thread that needs it would wait for it
to begin and again to report, while the event loop runs. What is large, copied or first of its file is written here, and so is
everything where that code was not built or a test's disk has to see each write. Both give the same bytes.

Two things can go wrong. A full disk refuses the group and everything queued behind it, leaves nothing of it readable, and the
writer continues at the same position. Anything else, above all a failed sync, ends the writer for good: what is on disk is unknown.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.log.wal.append_queue import CommitGroup, PendingAppend, PythonQueue
from holdfast.log.wal.direct_io import DirectWriter
from holdfast.log.wal.disk import NO_SPACE, WalDisk, close_quietly, invalidate_frames, sync_or_stop, write_all
from holdfast.log.wal.file_worker import FileWorker
from holdfast.log.wal.files import OpenFile, WalFiles
from holdfast.log.wal.frames import (
    FRAME_BYTES,
    MARK,
    ORIGIN_BYTES,
    Buffer,
    encode_file_header,
    encode_head,
    encode_origin,
)
from holdfast.log.wal.settings import WalSettings
from holdfast.log.wal.startup import OpenedWal, no_space, write_mark
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.alignment import alignment_padding
from holdfast.vocabulary.clock import Clock, stopwatch_ns
from holdfast.vocabulary.errors import CorruptError, HoldfastError, UnavailableError
from holdfast.vocabulary.native import native
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.time_slice import shorten_time_slice

if TYPE_CHECKING:
    from holdfast._native import AppendQueue as NativeQueue

_IN_PLACE_MIN_BYTES: Final = 64 * KIB


class WriterCallbacks(NamedTuple):
    """What the writer calls, on the loop."""

    rolled: Callable[[OpenFile, int], None]
    synced: Callable[[CommitGroup], None]
    refused: Callable[[list[PendingAppend], UnavailableError], None]
    failed: Callable[[list[PendingAppend], HoldfastError], None]


class WalWriter:
    """Owns the current file. `push` and `resume` are called by the loop, everything private by the thread."""

    def __init__(
        self,
        opened: OpenedWal,
        file_worker: FileWorker,
        *,
        clock: Clock,
        settings: WalSettings,
        disk: WalDisk,
    ) -> None:
        self._native = _native_queue(disk, settings)
        self.queue: PythonQueue | NativeQueue = PythonQueue() if self._native is None else self._native
        self._files: WalFiles = opened.files
        self._file, self._next_lsn, self._next_generation = opened.current, opened.next_lsn, opened.next_generation
        self._file_worker, self._clock, self._settings, self._disk = file_worker, clock, settings, disk
        self._blocks = DirectWriter(disk)
        self._resumed: SimpleQueue[None] = SimpleQueue()
        self._marked = True  # nothing was written since the last mark
        self._taken: list[PendingAppend] = []  # the group in hand
        self._heads: list[int] = []  # where its frames begin
        self._prepared: Future[OpenFile] | None = None

    def start(self, reports: WriterCallbacks) -> "asyncio.Future[None]":
        """Begin; the answer is done when the thread has ended."""
        self._loop, self._reports = asyncio.get_running_loop(), reports
        ended: asyncio.Future[None] = self._loop.create_future()
        self._prepare_next()
        if self._native is not None:
            self._loop.add_reader(self._native.descriptor, self._drain, self._native)
        # A daemon: a sync that hangs for ever must not keep the process from ending.
        threading.Thread(target=self._serve, args=(ended,), name="wal-writer", daemon=True).start()
        return ended

    def push(self, entry: PendingAppend) -> None:
        """Queue an append."""
        self.queue.append(entry, self._disk.without_interpreter and not failpoints.installed_any())

    def resume(self) -> None:
        """The loop has dealt with a refusal; what is queued from now on may be written."""
        self._resumed.put(None)

    def close(self) -> None:
        """Write what is queued, then end."""
        self.queue.close()

    def drop_prepared(self) -> None:
        """Close the prepared file. The file worker must have ended."""
        if self._prepared is not None and self._prepared.done() and self._prepared.exception() is None:
            close_quietly(self._prepared.result().descriptor)

    def _serve(self, ended: "asyncio.Future[None]") -> None:
        shorten_time_slice()
        with suppress(RuntimeError):  # the loop was closed: there is nothing to report to
            try:
                while self._wait():
                    self._write_or_refuse()
                self._finish()
            except Exception as error:
                self._fail(error)
            finally:
                self._close_file()
            self._call(self._resolve, ended)

    def _wait(self) -> bool:
        """Return True when there is something to write, False when there will never be."""
        found = self.queue.wait()
        if found and isinstance(self.queue, PythonQueue) and self._settings.group_wait_ms:
            self._wait_for_group(self.queue)
        return found

    def _wait_for_group(self, queue: PythonQueue) -> None:
        until_ms = self._clock.boot_ms() + self._settings.group_wait_ms
        while not queue.closing and (left_ms := until_ms - self._clock.boot_ms()) > 0:
            if queue.size_bytes >= self._settings.group_bytes_max:
                break
            queue.wait_for_more(left_ms / 1000)

    def _write_or_refuse(self) -> None:
        """Write the next groups, or refuse one if the disk is full. Any other error ends the writer."""
        try:
            if self._native is not None:
                self._write_plain_groups(self._native)
            if self.queue:
                self._write_group()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._refuse_group()

    def _write_plain_groups(self, queue: "NativeQueue") -> None:
        """Let the queue write, as long as it can."""
        file, before = self._file, self._next_lsn
        served = self._blocks.serve(queue, file, self._next_lsn, self._settings.group_bytes_max)
        if served is None:
            return
        self._next_lsn, error, self._taken, self._heads = served
        self._marked = self._marked and self._next_lsn == before
        if error:
            raise OSError(error, os.strerror(error), str(file.path))

    def _fail(self, error: Exception) -> None:
        self._call(self._reports.failed, self._taken, _as_corrupt(error, self._file.path))

    def _close_file(self) -> None:
        self._blocks.close()
        close_quietly(self._file.descriptor)

    def _write_group(self) -> None:
        taken_at_ns, pushed_at_ns = stopwatch_ns(), self.queue.pushed_at_ns
        first = self.queue.first
        if first is not None and first.size > self._file.left_bytes:
            self._roll()
        size = self._take()
        end = self._file.position
        spare = self._file.left_bytes - size  # for gaps
        lsn, synced_lsn, mark = self._next_lsn, self._next_lsn - 1, self._file.mark
        buffers: list[Buffer] = []
        replicated = False
        for frame, bytes_, _, _, origin in self._taken:
            if origin:
                gap = 0
                copied_bytes = bytes_ - FRAME_BYTES - ORIGIN_BYTES
                head = encode_head(mark, lsn, synced_lsn, frame, copied_bytes, ORIGIN_BYTES, copy=True) + encode_origin(
                    origin
                )
            else:
                gap = self._gap_before(frame.payload, end + FRAME_BYTES, spare)
                head = encode_head(mark, lsn, synced_lsn, frame, bytes_ - FRAME_BYTES, gap) + bytes(gap)
            spare -= gap
            self._heads.append(end)
            buffers.append(head)
            buffers += frame.payload
            end += bytes_ + gap
            lsn += 1
            replicated = replicated or frame.kind > MARK
        if replicated and not self._file.replicated:
            self._mark_replicated()
        write_at_ns = stopwatch_ns()
        durable = self._blocks.write(self._file, buffers, end - self._file.position)
        if not durable:
            write_all(self._disk, self._file.descriptor, buffers, self._file.position)
        failpoints.reached("wal.group-written")
        if not durable:
            sync_or_stop(self._disk, self._file.descriptor, self._file.path)
        failpoints.reached("wal.group-synced")
        synced_at_ns = stopwatch_ns()
        times = (max(0, taken_at_ns - pushed_at_ns), synced_at_ns - write_at_ns, synced_at_ns)
        group = CommitGroup(self._taken, self._next_lsn, size, self._file.header.generation, self._heads, *times)
        self._taken, self._heads, self._next_lsn, self._marked = [], [], lsn, False
        self._file.position = end
        self._call(self._reports.synced, group)

    def _mark_replicated(self) -> None:
        """Older releases must refuse the file before a frame stands in it that they would skip."""
        header = encode_file_header(self._file.header, replicated=True)
        write_all(self._disk, self._file.descriptor, (header,), 0)
        sync_or_stop(self._disk, self._file.descriptor, self._file.path)
        self._file.replicated = True
        failpoints.reached("wal.header-raised")

    def _gap_before(self, payload: Sequence[Buffer], position: int, spare: int) -> int:
        if len(payload) != 1:
            return 0
        gap = alignment_padding(payload[0], position, min_bytes=_IN_PLACE_MIN_BYTES)
        return gap if gap <= spare else 0

    def _take(self) -> int:
        """Move what fits into the file and into a group from the queue to `_taken`; say how many bytes it is."""
        queue, taken, total = self.queue, self._taken, 0
        left = self._file.left_bytes
        while (first := queue.first) is not None and total + first.size <= left:
            if taken and total + first.size > self._settings.group_bytes_max:
                break
            taken.append(queue.popleft())
            total += taken[-1].size
        return total

    def _roll(self) -> None:
        """Continue in the file the file worker prepared. All that was written before is synced."""
        if self._prepared is None or (self._prepared.done() and self._prepared.exception() is not None):
            self._prepare_next()  # the last try failed; perhaps there is space now
        assert self._prepared is not None
        fresh = self._prepared.result()
        self._files.begin(fresh, self._next_lsn)
        close_quietly(self._file.descriptor)
        self._file = fresh
        self._call(self._reports.rolled, fresh, self._next_lsn)
        self._next_generation += 1
        self._prepare_next()

    def _prepare_next(self) -> None:
        self._prepared = self._file_worker.submit(partial(self._files.prepare, self._next_generation))

    def _refuse_group(self) -> None:
        """The disk is full: leave nothing of the group readable, report it, and wait until it is handled."""
        self._take_back()
        wanted = max(self._settings.file_bytes, sum(entry.size for entry in self._taken))
        error = no_space(self._files.directory, self._disk, wanted)
        failpoints.reached("wal.space-refused")
        refused, self._taken, self._heads = self._taken, [], []
        self._call(self._reports.refused, refused, error)
        self._resumed.get()

    def _take_back(self) -> None:
        try:
            invalidate_frames(self._disk, self._file.descriptor, self._heads)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            # A copy-on-write disk can be too full even for this. Cutting the file off needs no space.
            os.ftruncate(self._file.descriptor, self._file.position)
        sync_or_stop(self._disk, self._file.descriptor, self._file.path)

    def _finish(self) -> None:
        """Prove the last group synced, so that later damage to it is not taken for a torn tail."""
        if self._marked or self._file.left_bytes < FRAME_BYTES:
            return
        try:
            write_mark(self._disk, self._file, self._next_lsn)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
        failpoints.reached("wal.mark-synced")

    def _call(self, listener: Callable[..., None], *facts: object) -> None:
        if self._native is None:
            self._loop.call_soon_threadsafe(listener, *facts)
        else:
            self._native.report((listener, facts))

    def _resolve(self, ended: "asyncio.Future[None]") -> None:
        if self._native is not None:
            self._loop.remove_reader(self._native.descriptor)
        if not ended.done():
            ended.set_result(None)

    def _drain(self, queue: "NativeQueue") -> None:
        """On the loop: what was written, and what the thread says, in the order in which it happened."""
        try:
            reports = queue.drain()
        except Exception as error:  # what was reported is lost with it
            reports = [(self._reports.failed, ([], _as_corrupt(error, self._file.path)))]
        for each in reports:
            try:
                if type(each) is CommitGroup:
                    self._reports.synced(each)
                else:
                    listener, facts = each
                    listener(*facts)
            except Exception as error:  # those behind it count all the same: the thread may wait for one, or have ended
                self._reports.failed([], _as_corrupt(error, self._file.path))


def _native_queue(disk: WalDisk, settings: WalSettings) -> "NativeQueue | None":
    """The queue that writes plain groups itself, where that is possible."""
    if native is None or not disk.without_interpreter or settings.group_wait_ms:
        return None
    return native.AppendQueue(CommitGroup)


def _as_corrupt(error: Exception, path: Path) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    return CorruptError(f"WAL file {path}", f"writing failed ({error!r}): the process must stop")
