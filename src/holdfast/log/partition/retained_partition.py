"""What a leader that lost its session still knows of a partition, for readers (docs/safety.md, rule 14).

The one rule: it answers only what no later leader can change. Records below the high watermark it knew while its session lived are
immutable, and so are the offsets of their timestamps; where the log ends now is not known here, so whoever reaches the end is sent
to look for the leader. It takes no appends.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast.contracts.store import Store
from holdfast.contracts.validation import prefix_end
from holdfast.log.batches import Buffer
from holdfast.log.errors import NotLeaderError
from holdfast.log.keys import partition_prefix, state_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.tail import Tail
from holdfast.log.segment_list import SegmentList, list_segments
from holdfast.log.segments import EpochStart
from holdfast.vocabulary.clock import Clock


class RetainedPartition:
    """A partition as its leader knew it. Made by `LeadingPartition.retained`. A `ReadablePartition` and a `ReadProgress`."""

    def __init__(
        self,
        partition_id: PartitionId,
        *,
        epoch: int,
        high_watermark: int,
        record: PartitionRecord,
        segments: SegmentList,
        tail: Tail,
        store: Store,
        clock: Clock,
    ) -> None:
        self.partition_id, self.epoch, self.high_watermark = partition_id, epoch, high_watermark
        self.start_offset = record.start
        self.epochs: Sequence[EpochStart] = record.epochs
        self.segments, self.tail = segments, tail
        self._store, self._clock, self._scanned = store, clock, 0

    def check_known(self, offset: int) -> None:
        """Raise unless the record at `offset` is known: at the end there may be more by now, and beyond it there is."""
        if offset >= self.high_watermark:
            raise self.not_leader()

    def not_leader(self) -> NotLeaderError:
        """For what only a leader can answer."""
        which = self.partition_id
        return NotLeaderError(which.topic, which.number, reason="its session is lost, and only what it knew is served")

    def check_readable(self) -> None:
        """Always: what is shown does not change."""

    async def refresh(self) -> None:
        """A segment is gone: read from the store what took its place. `UnavailableError`: the store is away, too."""
        which = self.partition_id
        prefix = partition_prefix(which.topic_id, which.number)
        scan = await self._store.scan(prefix, prefix_end(prefix))
        if scan.version < self._scanned:
            return  # another refresh was faster
        self._scanned, entries = scan.version, scan.entries  # as of one commit
        entry = next((each for each in entries if each.key == state_key(which.topic_id, which.number)), None)
        self.segments = list_segments(entries, which.topic_id, which.number)
        if entry is None:
            return
        record = msgspec.json.decode(entry.value, type=PartitionRecord)
        self.start_offset = record.start
        if record.published > self.high_watermark:  # others went on: what they published stays, and ours is among it
            self.high_watermark, self.tail = record.published, Tail(record.published)

    async def wait_beyond(self, offset: int, wait_ms: float) -> bool:
        """Nothing comes."""
        await self._clock.sleep_ms(wait_ms)
        return False

    def resolve_beyond(self, offset: int, waiter: "asyncio.Future[None]") -> None:
        """Nothing comes."""

    def forget(self, offset: int) -> None:
        """Nothing waits."""

    def read_tail(self, offset: int, *, bytes_max: int) -> list[Buffer] | None:
        """What is known from `offset` on; None: it is not in the tail."""
        if offset < self.tail.start:
            return None
        return self.tail.read(offset, below=self.high_watermark, bytes_max=bytes_max)
