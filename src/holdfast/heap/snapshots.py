"""Snapshots of a partition that is led here: every so often, and on demand.

The one rule: the event loop only copies (`state_image.capture`); encoding is another thread's, and one partition's at a time. A
snapshot is listed when everything it holds is durable, by a commit that is fenced by the partition's lease.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.heap.settings import HeapSettings
from holdfast.heap.snapshot_format import SnapshotSubject, encode_image
from holdfast.heap.state_image import StateImage
from holdfast.log.owned_partition import OwnedPartition
from holdfast.log.partition_snapshots import SnapshotRecord
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)


_FAILED_MS: Final = 5_000  # before another try, and twice as long after each one that fails


class SnapshotSource(Protocol):
    """A partition of which snapshots are taken."""

    @property
    def log(self) -> OwnedPartition:
        """Its log."""
        ...

    @property
    def ended(self) -> HoldfastError | None:
        """Why this view ended, if it did."""
        ...

    def image(self) -> StateImage:
        """A copy of its state as it is now. Raises when its leadership has ended."""
        ...

    async def durable(self) -> None:
        """Everything so far is durable."""
        ...


@dataclass(slots=True)
class SnapshotFigures:
    """What the snapshots of one leadership cost. `pause_ms`: how long the last one held up the event loop."""

    taken: int = 0
    failed: int = 0
    pause_ms: float = 0.0
    pause_ms_max: float = 0.0


class SnapshotKeeper:
    """Takes the snapshots of one leadership. `turn`: held by the one that is encoded, of all partitions of the process."""

    def __init__(
        self,
        source: SnapshotSource,
        settings: HeapSettings,
        *,
        turn: asyncio.Lock,
        clock: Clock,
        random: Random,
    ) -> None:
        self.figures = SnapshotFigures()
        self._source, self._settings, self._turn, self._clock, self._random = source, settings, turn, clock, random
        self._due = Notify()
        self._due_at = self._next_due()  # the length of the log at which one is due before its time

    @property
    def newest(self) -> SnapshotRecord | None:
        """The newest snapshot."""
        listed = self._source.log.snapshots.list.snapshots
        return listed[-1] if listed else None

    async def run(self) -> None:
        """Take one every `snapshot_interval_ms`, or as soon as very much has happened, until the view has ended."""
        settings, failures = self._settings, 0
        while self._source.ended is None:
            interval_ms = self._random.jitter(settings.snapshot_interval_ms, share=0.2)
            backoff_ms = _FAILED_MS * (1 << min(failures, 10)) if failures else 0
            pause_ms = min(interval_ms, max(settings.snapshot_pause_ms, backoff_ms))
            await self._clock.sleep_ms(pause_ms)
            if self._records_since() < settings.snapshot_records_max:
                await self._due.wait_ms(self._clock, interval_ms - pause_ms)
            if self._records_since() < min(settings.snapshot_records_min, settings.snapshot_records_max):
                continue
            try:
                await self.take()
                failures = 0
            except HoldfastError as error:
                self.figures.failed += 1
                failures += 1
                if self._source.ended is None:
                    _log.warning("snapshot of %s failed, retrying later: %s", self._source.log.partition_id, error)

    def added(self, next_offset: int) -> None:
        """The log is so long now. Called for every operation."""
        if next_offset >= self._due_at:
            self._due_at = next_offset + self._settings.snapshot_records_max  # said once
            self._due.notify()

    def _next_due(self) -> int:
        newest = self.newest
        return (newest.offset if newest is not None else 0) + self._settings.snapshot_records_max

    def _records_since(self) -> int:
        newest = self.newest
        return self._source.log.next_offset - (newest.offset if newest is not None else 0)

    async def take(self) -> SnapshotRecord:
        """Take a snapshot, unless nothing has happened since the last one; the newest one. Raises what storage raises."""
        await self._source.durable()  # one that cannot be, keeps no other from its turn
        async with self._turn:
            newest, log = self.newest, self._source.log
            began_ms = self._clock.boot_ms()
            image = self._source.image()
            self.figures.pause_ms = self._clock.boot_ms() - began_ms
            self.figures.pause_ms_max = max(self.figures.pause_ms_max, self.figures.pause_ms)
            await self._source.durable()
            if newest is not None and newest.offset == image.next_offset:
                return newest
            subject = SnapshotSubject(log.partition_id.topic_id, log.partition_id.number)
            body = await asyncio.to_thread(encode_image, image, subject)
            taken = await log.snapshots.put(image.next_offset, body)
            self._due_at = self._next_due()
            self.figures.taken += 1
            return taken
