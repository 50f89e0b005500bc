"""The published part of a partition, as any process sees it from the store and object storage alone.

It shows everything below `published`, and never the tail: for that, ask the leader. It is as old as the last `refresh`,
which is harmless: what is published does not change, it only grows, and shrinks at the old end. It never gets older: of two
refreshes at once the answer to the earlier may come last, and a reader would take what that does not list for a gap.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast.contracts.store import Changed, Entry, Resync, Store
from holdfast.contracts.validation import prefix_end
from holdfast.log.keys import partition_prefix, state_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.tail import Tail
from holdfast.log.segment_list import SegmentList, list_segments
from holdfast.log.segments import EpochStart
from holdfast.vocabulary.clock import Clock


class PublishedLog:
    """Follows one partition without leading it. Made by `open`."""

    def __init__(self, partition_id: PartitionId, *, store: Store, clock: Clock) -> None:
        self.partition_id = partition_id
        self._store, self._clock = store, clock
        self._key = state_key(partition_id.topic_id, partition_id.number)
        self._record = PartitionRecord()
        self._version = self._scanned = 0
        self.segments = SegmentList()
        self.tail = Tail(0)

    @classmethod
    async def open(cls, partition_id: PartitionId, *, store: Store, clock: Clock) -> "PublishedLog":
        """The partition as it is published now; one that was never opened is empty."""
        log = cls(partition_id, store=store, clock=clock)
        await log.refresh()
        return log

    @property
    def start_offset(self) -> int:
        """The first offset that is still kept."""
        return min(self._record.start, self.high_watermark)

    @property
    def high_watermark(self) -> int:
        """Everything below is published."""
        return self.tail.start

    @property
    def epochs(self) -> Sequence[EpochStart]:
        """The leader history."""
        return self._record.epochs

    def check_readable(self) -> None:
        """Always: what is published stays published."""

    async def refresh(self) -> None:
        """Read record and segments from the store again, as of one commit: what is not listed then is below its start, or a gap."""
        which = self.partition_id
        prefix = partition_prefix(which.topic_id, which.number)
        scan = await self._store.scan(prefix, prefix_end(prefix))
        if scan.version < self._scanned:
            return
        self._scanned, entries = scan.version, scan.entries
        entry = next((each for each in reversed(entries) if each.key == self._key), None)
        if entry is not None and entry.version != self._version:
            self._take(entry)
        self.segments = list_segments(entries, which.topic_id, which.number)

    async def wait_beyond(self, offset: int, wait_ms: float) -> bool:
        """Wait until something beyond `offset` is published, at most `wait_ms`."""
        deadline_ms = self._clock.boot_ms() + wait_ms
        await self.refresh()
        if self.high_watermark > offset:
            return True
        async with self._store.watch(self._key, from_version=self._version) as changes:
            while self.high_watermark <= offset:
                left_ms = deadline_ms - self._clock.boot_ms()
                if left_ms <= 0 or not await self._changed(changes, left_ms):
                    return False
                await self.refresh()
        return True

    async def _changed(self, changes: AsyncIterator[Changed | Resync], wait_ms: float) -> bool:
        """Whether a change comes within `wait_ms`."""
        change = asyncio.ensure_future(anext(changes))
        sleep = asyncio.ensure_future(self._clock.sleep_ms(wait_ms))
        try:
            await asyncio.wait((change, sleep), return_when=asyncio.FIRST_COMPLETED)
            if not change.done():
                return False
            change.result()
            return True
        finally:
            sleep.cancel()
            change.cancel()
            await asyncio.wait((change,))  # the watch must not be closed while it is read

    def _take(self, entry: Entry) -> None:
        self._record = msgspec.json.decode(entry.value, type=PartitionRecord)
        self._version = entry.version
        self.tail = Tail(self._record.published)
