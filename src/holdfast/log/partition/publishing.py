"""Publishing: durable batches become segments in object storage, named by one fenced commit.

Body first, index second: a crash in between leaves an object nobody names, which the sweeper removes; the other order would leave a
name that points at nothing. A failed upload changes nothing: the tail and the WAL keep what they have until a commit says it is
published. Partitions that are due together go together: small ones share an object, all share commits.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import msgspec

from holdfast.contracts.objects import Buffer, Objects
from holdfast.contracts.store import Absent, AtVersion, Conflict, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.surely import commit_surely
from holdfast.kernel.keys import epoch_key
from holdfast.log.keys import doomed_key, segment_entry_key, state_key
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.records import PartitionRecord, SegmentRecord
from holdfast.log.segments import BuiltSegment, build_segment, segment_key, shared_key
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import FencedError, HoldfastError

_OPERATIONS_PER_PARTITION = 5  # fence, record, doom mark; record, segment


@dataclass(frozen=True, slots=True)
class _Ready:
    """A built segment on its way: what the store will hold once it is published."""

    partition: LeadingPartition
    built: BuiltSegment
    segment: SegmentRecord
    record: PartitionRecord

    @property
    def state(self) -> str:
        return state_key(self.partition.place.topic_id, self.partition.place.number)

    def require(self) -> tuple[Requirement, ...]:
        return (
            self.partition.lease.fence(),
            AtVersion(self.state, self.partition.record_version),
            Absent(doomed_key(self.segment.object)),
        )

    def apply(self) -> tuple[Operation, ...]:
        place = self.partition.place
        key = segment_entry_key(place.topic_id, place.number, self.segment.base_offset)
        return (
            Put(self.state, msgspec.json.encode(self.record)),
            Put(key, msgspec.json.encode(self.segment)),
        )

    def lost(self, found: Mapping[str, Entry | None]) -> bool:
        """Whether what was found means that this partition is no longer ours to publish."""
        epoch, state = found.get(epoch_key(self.partition.lease.resource)), found.get(self.state)
        return (
            epoch is None
            or epoch.version != self.partition.lease.version
            or state is None
            or state.version != self.partition.record_version
            or found.get(doomed_key(self.segment.object)) is not None
        )


class Publisher:
    """Publishes partitions of one agent. `steps` is called at labelled points, for tests that crash there."""

    def __init__(
        self,
        *,
        store: Store,
        objects: Objects,
        clock: Clock,
        chance: Chance,
        settings: LogSettings,
        steps: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store, self._objects, self._clock, self._chance = store, objects, clock, chance
        self._settings, self._step = settings, steps

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        """Publish everything durable of these partitions; the ones that turned out to be lost are returned.

        `closing` also lowers the reservation to what was handed out: the partition is then clean and can move at once.
        `UnavailableError`: object storage or the store is away, and nothing was lost; try again.
        """
        chosen = sorted(set(partitions), key=lambda each: (each.place.topic_id, each.place.number))
        async with AsyncExitStack() as locks:
            for partition in chosen:
                await locks.enter_async_context(partition.record_lock)
            built = await asyncio.gather(*(self._build(partition) for partition in chosen))
            segments = [each for each in built if each is not None]
            self._step("segment built")
            ready = await self._upload(segments, closing)
            self._step("segment uploaded")
            lost: list[LeadingPartition] = []
            per_commit = 100 // _OPERATIONS_PER_PARTITION
            for at in range(0, len(ready), per_commit):
                lost.extend(await self._commit(ready[at : at + per_commit]))
            if closing:
                lost.extend(await self._lower([each for each in chosen if each not in lost]))
            return lost

    async def _build(self, partition: LeadingPartition) -> tuple[LeadingPartition, BuiltSegment] | None:
        batches = partition.publishable()
        if not batches:
            return None
        producers = partition.producers_below(batches[-1].end_offset).snapshot(batches[-1].end_offset)
        built = await asyncio.to_thread(
            build_segment,
            [batch.data for batch in batches],
            topic_id=partition.place.topic_id,
            partition=partition.place.number,
            epochs=partition.record.epochs,
            producers=producers,
        )
        return partition, built

    async def _upload(self, segments: Sequence[tuple[LeadingPartition, BuiltSegment]], closing: bool) -> list[_Ready]:
        small = [each for each in segments if each[1].meta.bytes < self._settings.shared_below_bytes]
        shared = small if len(small) > 1 else []
        alone = [each for each in segments if each not in shared]
        uploads = [self._put([each], self._own_key(*each), closing) for each in alone]
        if shared:
            uploads.append(self._put(shared, shared_key(self._chance.token()), closing))
        return [ready for group in await asyncio.gather(*uploads) for ready in group]

    def _own_key(self, partition: LeadingPartition, built: BuiltSegment) -> str:
        place, meta = partition.place, built.meta
        return segment_key(
            place.topic_id, place.number, meta.base_offset, meta.end_offset, partition.lease.epoch, self._chance.token()
        )

    async def _put(
        self, segments: Sequence[tuple[LeadingPartition, BuiltSegment]], key: str, closing: bool
    ) -> list[_Ready]:
        body: list[Buffer] = []
        ready = []
        at = 0
        for partition, built in segments:
            body.extend(built.parts)
            end = at + sum(len(part) for part in built.parts)
            meta = built.meta
            segment = SegmentRecord(
                base_offset=meta.base_offset,
                end_offset=meta.end_offset,
                object=key,
                start=at,
                end=end,
                epoch=partition.lease.epoch,
                records=meta.record_count,
                min_timestamp_ms=meta.min_timestamp_ms,
                max_timestamp_ms=meta.max_timestamp_ms,
            )
            reserved = meta.end_offset if closing else partition.record.reserved
            record = msgspec.structs.replace(partition.record, published=meta.end_offset, reserved=reserved)
            ready.append(_Ready(partition, built, segment, record))
            at = end
        await self._objects.put(key, body)  # `AlreadyThere` is our own upload, retried: the key holds a fresh upload id
        return ready

    async def _commit(self, ready: Sequence[_Ready]) -> list[LeadingPartition]:
        """Name what was uploaded. Partitions that were lost meanwhile are left out and returned; the rest is published."""
        lost: list[LeadingPartition] = []
        left = list(ready)
        while left:
            outcome = await commit_surely(
                self._store,
                clock=self._clock,
                chance=self._chance,
                require=[requirement for each in left for requirement in each.require()],
                apply=[operation for each in left for operation in each.apply()],
            )
            if not isinstance(outcome, Conflict):
                self._step("segment committed")
                for each in left:
                    each.partition.took(each.record, outcome.version)
                    each.partition.segments.recent.append(each.segment)
                    each.partition.was_published(each.segment.end_offset)
                break
            gone = [each for each in left if each.lost(outcome.found)]
            lost.extend(each.partition for each in gone)
            left = [each for each in left if each not in gone] if gone else []
        return lost

    async def _lower(self, partitions: Sequence[LeadingPartition]) -> list[LeadingPartition]:
        """Give back what was reserved and not used, where nothing was left to publish."""
        lost = []
        for partition in partitions:
            record = partition.record
            if record.reserved > record.published == partition.next_offset:
                try:
                    await partition.change_record(msgspec.structs.replace(record, reserved=record.published))
                except FencedError:
                    lost.append(partition)
                except HoldfastError:
                    raise
        return lost
