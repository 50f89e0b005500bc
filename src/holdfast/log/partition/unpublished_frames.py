"""Unpublished WAL frames of partitions this process does not lead now.

A partition that is closed with unpublished records may be assigned to this process again: its frames from before the start are read
from the WAL files, those since are remembered here. Frames that are not needed are released, so that WAL files can be recycled;
what an unclean takeover has left out is kept and listed, for an operator to decide (docs/safety.md, rule 9).
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.store import Store
from holdfast.log.keys import state_key, topic_id_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.wal import Wal, WalFrame
from holdfast.log.wal.recovery import PartitionKey

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuarantinedRange:
    """Offsets [`start`, `end`) of a partition that an unclean takeover left out, and that this WAL may hold."""

    topic_id: str
    partition: int
    start: int
    end: int


class UnpublishedFrames:
    """Those of one WAL."""

    def __init__(self, wal: Wal, wal_id: str, store: Store) -> None:
        self._wal, self._wal_id, self._store = wal, wal_id, store
        self._kept: dict[PartitionKey, list[WalFrame]] = {}
        self.quarantined: list[QuarantinedRange] = []

    def remember(self, partition: LeadingPartition) -> None:
        """Remember what a partition that is being closed has not published."""
        key = (bytes.fromhex(partition.partition_id.topic_id), partition.partition_id.number)
        frames = partition.unpublished_frames()
        if frames:
            self._kept[key] = frames
        else:
            self._kept.pop(key, None)

    async def frames(self, topic_id: bytes, number: int) -> AsyncIterator[WalFrame]:
        """Every frame of a partition, oldest first."""
        async for frame in self._wal.recovered.of(topic_id, number):
            yield frame
        for frame in self._kept.get((topic_id, number), ()):
            yield frame

    def forget(self, topic_id: bytes, number: int) -> None:
        """The partition is led here again, and has recovered its frames."""
        self._kept.pop((topic_id, number), None)

    def discard(self, topic_id: bytes, number: int) -> None:
        """The topic was deleted: release its frames."""
        self._kept.pop((topic_id, number), None)
        end = self._wal.unreleased().get((topic_id, number))
        if end is not None:
            self._wal.release(topic_id, number, end)

    async def release_unneeded(self) -> None:
        """Release what is published or belongs to nothing, and list what is quarantined. Call it before partitions are opened."""
        self.quarantined = []
        for (topic_id, number), end in self._wal.unreleased().items():
            entry = await self._store.get(state_key(topic_id.hex(), number))
            if entry is None:
                if await self._store.get(topic_id_key(topic_id.hex())) is None:
                    self._wal.release(topic_id, number, end)
                continue
            record = msgspec.json.decode(entry.value, type=PartitionRecord)
            ours = [gap for gap in record.gaps if gap.wal == self._wal_id]
            if record.wal == self._wal_id:
                self._wal.release(topic_id, number, record.published)
            elif ours:
                self.quarantined += [QuarantinedRange(topic_id.hex(), number, gap.start, gap.end) for gap in ours]
            else:
                self._wal.release(topic_id, number, end)
        if self.quarantined:
            _log.warning(
                "WAL %s holds records of %d offset ranges that unclean takeovers skipped; `holdfast wal inspect` lists them",
                self._wal.directory,
                len(self.quarantined),
            )
