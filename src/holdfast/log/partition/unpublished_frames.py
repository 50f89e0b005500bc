"""Unpublished WAL frames of partitions this process does not lead now.

A partition that is closed with unpublished records may be assigned to this process again: its frames from before the start are read
from the WAL files, those since are remembered here. Frames that are not needed are released, so that WAL files can be recycled;
what an unclean takeover has left out is set aside first, for an operator to decide (docs/safety.md, rules 9 and 29).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

import msgspec

from holdfast.contracts.key_reads import read_keys
from holdfast.contracts.store import Store
from holdfast.log.keys import state_key, topic_id_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.left_out_tails import set_aside_gaps
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.wal import Wal, WalFrame
from holdfast.log.wal.frames import STATE_BIT
from holdfast.log.wal.recovery import PartitionKey
from holdfast.log.wal.set_aside import KEPT, list_tails
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.tasks import LoopTurns, gather_limited

_log: Final = logging.getLogger(__name__)

_READS_MAX: Final = 8  # concurrent
_CHUNK: Final = 100  # partitions read in one call


class _TopicName(msgspec.Struct):
    name: str


class UnpublishedFrames:
    """Those of one WAL."""

    def __init__(self, wal: Wal, wal_id: str, store: Store, *, clock: Clock, budget: TailBudget | None = None) -> None:
        self._wal, self._wal_id, self._store, self._clock, self._budget = wal, wal_id, store, clock, budget
        self._kept: dict[PartitionKey, list[WalFrame]] = {}
        self._turns = LoopTurns()  # with thousands of partitions, others get theirs in between

    def remember(self, partition: LeadingPartition) -> None:
        """Remember what a partition that is being closed has not published."""
        key = (bytes.fromhex(partition.partition_id.topic_id), partition.partition_id.number)
        self._keep(key, partition.unpublished_frames())

    async def frames(self, topic_id: bytes, number: int) -> AsyncIterator[WalFrame]:
        """Every frame of a partition, oldest first."""
        async for frame in self._wal.recovered.of(topic_id, number):
            yield frame
        for frame in self._kept.get((topic_id, number), ()):
            yield frame

    def forget(self, topic_id: bytes, number: int) -> None:
        """The partition is led here again, and has recovered its frames."""
        self._keep((topic_id, number), [])

    def discard(self, topic_id: bytes, number: int) -> None:
        """The topic was deleted: release its frames."""
        self._keep((topic_id, number), [])
        end = self._wal.unreleased().get((topic_id, number))
        if end is not None:
            self._wal.release(topic_id, number, end)

    def _keep(self, key: PartitionKey, frames: list[WalFrame]) -> None:
        before = self._kept.pop(key, [])
        if frames:
            self._kept[key] = frames
        if self._budget is not None and (frames or before):
            self._budget.keep(_size_bytes(frames) - _size_bytes(before))

    def _release(self, topic_id: bytes, number: int, below_offset: int) -> None:
        self._wal.release(topic_id, number, below_offset)
        kept = self._kept.get((topic_id, number), [])
        self._keep((topic_id, number), [frame for frame in kept if frame.end_offset > below_offset])

    async def release_unneeded(self) -> None:
        """Release what is published or belongs to nothing; what takeovers left out is set aside before.

        Call it before partitions are opened. A partition whose frames cannot be set aside keeps them. It needs no session, and must
        not be done under one: with many partitions it takes longer than a session lives.
        """
        unreleased = sorted(self._wal.unreleased().items())
        chunks = [unreleased[at : at + _CHUNK] for at in range(0, len(unreleased), _CHUNK)]
        replicated = {(topic_id, number ^ STATE_BIT) for (topic_id, number), _ in unreleased if number & STATE_BIT}
        await gather_limited(lambda chunk: self._release_chunk(chunk, replicated), chunks, _READS_MAX)
        await self._log_tails()

    async def _release_chunk(
        self, unreleased: Sequence[tuple[PartitionKey, int]], replicated: Collection[PartitionKey]
    ) -> None:
        """Some partitions, each with the end offset of its frames in the WAL."""
        partitions = {key: (key[0], key[1] & ~STATE_BIT) for key, _ in unreleased}
        keys = {state_key(topic_id.hex(), number): (topic_id, number) for topic_id, number in partitions.values()}
        found = await read_keys(self._store, list(keys))
        records = {keys[key]: msgspec.json.decode(entry.value, type=PartitionRecord) for key, entry in found.items()}
        without_record = {topic_id_key(each[0].hex()) for each in partitions.values() if each not in records}
        existing = await read_keys(self._store, sorted(without_record))
        await self._turns.next()
        for key, end in unreleased:
            partition = partitions[key]
            if partition in records and partition in replicated:
                continue  # it is for the replica to say what it needs, whoever leads
            if partition in records:
                await self._release_published(key, end, records[partition])
            elif topic_id_key(key[0].hex()) not in existing:
                self._release(*key, end)

    async def _release_published(self, key: PartitionKey, end: int, record: PartitionRecord) -> None:
        topic_id, number = key
        try:
            await self._set_aside(topic_id, number, record)
        except (CorruptError, UnavailableError) as error:
            _log.warning("partition %s:%d keeps its frames in the WAL: %s", topic_id.hex(), number, error)
            return
        self._release(topic_id, number, record.published if record.wal == self._wal_id else end)

    async def _set_aside(self, topic_id: bytes, number: int, record: PartitionRecord) -> None:
        if not any(gap.wal == self._wal_id for gap in record.gaps):
            return
        named = await self._store.get(topic_id_key(topic_id.hex()))
        topic = "" if named is None else msgspec.json.decode(named.value, type=_TopicName).name
        await set_aside_gaps(
            PartitionId(topic=topic, topic_id=topic_id.hex(), number=number),
            record,
            self.frames(topic_id, number),
            directory=self._wal.directory,
            wal_id=self._wal_id,
            now_ms=self._clock.now_ms(),
        )

    async def _log_tails(self) -> None:
        tails = await asyncio.to_thread(list_tails, self._wal.directory)
        kept = [tail for tail in tails if tail.state == KEPT]
        if kept:
            _log.warning(
                "%d tails that takeovers left out are set aside: `holdfast wal set-aside list %s` shows them",
                len(kept),
                self._wal.directory,
            )


def _size_bytes(frames: Iterable[WalFrame]) -> int:
    return sum(len(each) for frame in frames for each in frame.payload)
