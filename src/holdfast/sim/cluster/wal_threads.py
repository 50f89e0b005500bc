"""The two threads of a WAL as steps of the loop: the production writer and file worker, told when to go on.

The one rule: a step belongs to its process, as in `ClusterLoop`. Everything that is written is written by the code that ships; what
is replaced is the waiting.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

from holdfast.log.wal.append_queue import PendingAppend
from holdfast.log.wal.disk import WalDisk
from holdfast.log.wal.file_worker import FileWorker
from holdfast.log.wal.startup import OpenedWal
from holdfast.log.wal.writer import WalWriter, WriterCallbacks
from holdfast.sim.cluster.disk import SimDisk
from holdfast.sim.process import RUNNING, SimProcess

T = TypeVar("T")


class SteppedFileWorker(FileWorker):
    """Does each job at once."""

    def __init__(self) -> None:
        self._process = _process()

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        answer: Future[T] = Future()
        if self._process.dead:
            return answer  # for ever: nobody waits for it any more
        try:
            answer.set_result(job())
        except Exception as error:
            answer.set_exception(error)
        return answer


class SteppedWriter(WalWriter):
    """Writes a group some time after it was pushed: as long as the disk takes."""

    def __init__(self, opened: OpenedWal, file_worker: FileWorker, *, disk: WalDisk, **others: Any) -> None:
        super().__init__(opened, file_worker, disk=disk, **others)
        assert isinstance(disk, SimDisk)
        self._sync_ms = disk.sync_ms
        self._opened, self._process = opened, _process()
        self._process.on_death.append(self._abandon)
        self._context = copy_context()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stepping = self._over = self._closed = self._closing = False

    def start(self, reports: WriterCallbacks) -> "asyncio.Future[None]":
        self._reports = reports
        self._prepare_next()
        return self._ended

    def push(self, entry: PendingAppend) -> None:
        self.queue.append(entry, False)
        self._go_on()

    def close(self) -> None:
        self._closing = True
        self._go_on()

    def drop_prepared(self) -> None:
        """The last step of closing a WAL; its lock is released right after."""
        super().drop_prepared()
        self._closed = True

    def _abandon(self) -> None:
        """The process died: what it had open is closed, and nothing more is written."""
        if not self._over:
            self._over = True
            self._close_file()
            if not self._ended.done():
                self._ended.set_result(None)
        if not self._closed:
            self.drop_prepared()
            self._opened.lock.release()

    def _go_on(self) -> None:
        if not self._stepping and not self._over:
            self._stepping = True
            self._process.deliver_in(self._sync_ms(), self._step)

    def _step(self) -> None:
        self._context.copy().run(self._write)

    def _write(self) -> None:
        self._stepping = False
        if self._over:
            return
        try:
            if self.queue:
                self._write_or_refuse()
            if self._closing and not self.queue:
                self._finish()
        except asyncio.CancelledError:
            return  # it died here
        except Exception as error:
            self._fail(error)
            self._end()
            return
        if self.queue:
            self._go_on()
        elif self._closing:
            self._end()

    def _end(self) -> None:
        self._over = True
        self._close_file()
        self._ended.set_result(None)

    def _call(self, listener: Callable[..., None], *facts: object) -> None:
        listener(*facts)


def _process() -> SimProcess:
    process = RUNNING.get()
    assert process is not None
    return process
