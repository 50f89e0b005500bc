"""Appends on their way to the disk: from the loop to the writer's thread.

There are two queues: this one, and the native one (`src/_native/append_queue.c`), which also writes plain groups and reports them
without the interpreter. The writer takes appends out of either, in the order they came in.
"""

from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from holdfast.log.model import OnDurable
from holdfast.log.wal.frames import WalFrame
from holdfast.log.wal.recovery import LiveFile
from holdfast.vocabulary.clock import stopwatch_ns


class PendingAppend(NamedTuple):
    """An append on its way to the disk."""

    frame: WalFrame
    size: int  # with its head
    on_durable: OnDurable
    source: LiveFile | None = None  # the older file it is copied from
    origin_lsn: int = 0  # of such a copy: the LSN it had first, which is written before the payload


class CommitGroup(NamedTuple):
    """Appends that reached the disk together, from `first_lsn` on, all in the file of `generation`, at `positions`."""

    entries: list[PendingAppend]
    first_lsn: int
    size: int
    generation: int
    positions: list[int]
    handover_ns: int = 0  # from the first append to the writer's thread
    write_ns: int = 0
    synced_at_ns: int = 0


class PythonQueue:
    """`append` and `close` are called by the loop, everything else by the writer."""

    def __init__(self) -> None:
        self._queued: deque[PendingAppend] = deque()
        self._wake_up: SimpleQueue[None] = SimpleQueue()
        self._asleep = False
        self.closing = False
        self.pushed_at_ns = 0  # the first of what is queued

    def __len__(self) -> int:
        return len(self._queued)

    def append(self, entry: PendingAppend, plain: bool, /) -> None:
        """Queue an append. `plain` matters to the native queue."""
        if not self._queued:
            self.pushed_at_ns = stopwatch_ns()
        self._queued.append(entry)
        if self._asleep:
            self._asleep = False
            self._wake_up.put(None)

    def close(self) -> None:
        """Nothing more will be appended."""
        self.closing = True
        self._wake_up.put(None)

    @property
    def first(self) -> PendingAppend | None:
        """The next append."""
        return self._queued[0] if self._queued else None

    @property
    def size_bytes(self) -> int:
        """What is queued."""
        return sum(entry.size for entry in tuple(self._queued))

    def popleft(self) -> PendingAppend:
        """Take the next append."""
        return self._queued.popleft()

    def take_all(self) -> list[PendingAppend]:
        """Take all of them, while the writer stands still."""
        taken = [*self._queued]
        self._queued.clear()
        return taken

    def wait(self) -> bool:
        """Return True when there is something to write, False when there will never be."""
        while not self._queued:
            if self.closing:
                return False
            self._asleep = True
            if self._queued or self.closing:  # came between the two checks; there would be no wake-up
                self._asleep = False
                continue
            self._wake_up.get()
        return True

    def wait_for_more(self, timeout_s: float) -> None:
        """Return when something more is queued, or after `timeout_s`."""
        self._asleep = True
        with suppress(Empty):
            self._wake_up.get(timeout=timeout_s)
        self._asleep = False
