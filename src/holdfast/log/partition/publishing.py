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

from holdfast.contracts.checks import StoreLimits
from holdfast.contracts.objects import Buffer, Objects
from holdfast.contracts.store import Absent, Conflict, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.surely import commit_surely
from holdfast.kernel.keys import epoch_key
from holdfast.log.keys import doomed_key, segment_entry_key
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.records import PartitionRecord, SegmentRecord
from holdfast.log.partition.unbroken import unbroken
from holdfast.log.segments import BuiltSegment, SegmentMeta, build_object, build_segment, segment_key, shared_key
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError

_OPERATIONS_PER_PARTITION = 5  # fence, record, doom mark; record, segment
_PARTITIONS_PER_COMMIT = StoreLimits().ops_max // _OPERATIONS_PER_PARTITION


@dataclass(frozen=True, slots=True)
class _Ready:
    """A segment that is uploaded and not named yet."""

    partition: LeadingPartition
    segment: SegmentRecord

    def require(self) -> tuple[Requirement, ...]:
        return *self.partition.keeper.require(), Absent(doomed_key(self.segment.object))

    def apply(self, record: PartitionRecord) -> tuple[Operation, ...]:
        place = self.partition.place
        key = segment_entry_key(place.topic_id, place.number, self.segment.base_offset)
        return self.partition.keeper.put(record), Put(key, msgspec.json.encode(self.segment))

    def lost(self, found: Mapping[str, Entry | None]) -> bool:
        """Whether what was found means that this partition is no longer ours to publish."""
        keeper = self.partition.keeper
        epoch, state = found.get(epoch_key(self.partition.lease.resource)), found.get(keeper.key)
        return (
            epoch is None
            or epoch.version != self.partition.lease.version
            or state is None
            or state.version != keeper.version
        )

    def doomed(self, found: Mapping[str, Entry | None]) -> bool:
        """Whether a sweeper took the object for an orphan: the upload was too slow, and has to be done again."""
        return found.get(doomed_key(self.segment.object)) is not None


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

        `closing` also lowers the reservation of those that accept no more to what was handed out: such a partition is clean
        and can move at once. `UnavailableError`, `OutcomeUnknownError`: object storage or the store is away, and nothing was
        lost; try again.
        """
        chosen = sorted(set(partitions), key=lambda each: (each.place.topic_id, each.place.number))
        async with AsyncExitStack() as locks:
            for partition in chosen:
                await locks.enter_async_context(partition.publish_lock)
            for partition in chosen:
                async with partition.record_lock:
                    await partition.settle_record()
            built = await asyncio.gather(*(self._build(partition) for partition in chosen))
            self._step("segment built")
            ready = await self._upload([each for each in built if each is not None])
            self._step("segment uploaded")
            lost: list[LeadingPartition] = []
            chunks = [ready[at : at + _PARTITIONS_PER_COMMIT] for at in range(0, len(ready), _PARTITIONS_PER_COMMIT)]
            # Every chunk comes to its end before the locks are let go, whatever became of the others.
            outcomes = await asyncio.gather(*(self._commit(chunk, closing) for chunk in chunks), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                lost.extend(outcome)
            if closing:
                lost.extend(await self._give_back([each for each in chosen if each not in lost]))
            return lost

    async def _build(self, partition: LeadingPartition) -> tuple[LeadingPartition, BuiltSegment] | None:
        batches = partition.publishable()
        if not batches:
            return None
        end = batches[-1].end_offset
        built = await asyncio.to_thread(
            build_segment,
            [batch.data for batch in batches],
            topic_id=partition.place.topic_id,
            partition=partition.place.number,
            epochs=[each for each in partition.record.epochs if each.start_offset <= end],
            producers=partition.producers_at(end),
        )
        return partition, built

    async def _upload(self, segments: Sequence[tuple[LeadingPartition, BuiltSegment]]) -> list[_Ready]:
        small = [each for each in segments if each[1].meta.bytes < self._settings.shared_below_bytes]
        shared = small if len(small) > 1 else []
        alone = [each for each in segments if each not in shared]
        uploads = [self._put_alone(partition, built) for partition, built in alone]
        if shared:
            uploads.append(self._put_shared(shared))
        return [ready for group in await asyncio.gather(*uploads) for ready in group]

    async def _put_alone(self, partition: LeadingPartition, built: BuiltSegment) -> list[_Ready]:
        place, meta = partition.place, built.meta
        key = segment_key(
            place.topic_id, place.number, meta.base_offset, meta.end_offset, partition.lease.epoch, self._chance.token()
        )
        await self._put(key, built.parts)
        return [_Ready(partition, _named(partition, meta, key, 0, meta.bytes))]

    async def _put_shared(self, segments: Sequence[tuple[LeadingPartition, BuiltSegment]]) -> list[_Ready]:
        key = shared_key(self._chance.token())
        parts, ranges = build_object([built for _, built in segments])
        await self._put(key, parts)
        return [
            _Ready(partition, _named(partition, built.meta, key, place.start, place.end))
            for (partition, built), place in zip(segments, ranges, strict=True)
        ]

    async def _put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._objects.put(
            key, parts
        )  # `AlreadyThere` is our own upload, retried: the key holds a fresh upload id

    async def _commit(self, ready: Sequence[_Ready], closing: bool) -> list[LeadingPartition]:
        """Name what was uploaded. Partitions that were lost meanwhile are left out and returned; the rest is published."""
        lost: list[LeadingPartition] = []
        async with AsyncExitStack() as locks:
            for each in ready:
                await locks.enter_async_context(each.partition.record_lock)
            left = list(ready)
            while left:
                found = await unbroken(self._name(left, closing))
                if found is None:
                    break
                gone = [each for each in left if each.lost(found)]
                lost.extend(each.partition for each in gone)
                # What a sweeper has doomed stays in the tail, and the next publication uploads it again.
                fit = [each for each in left if each not in gone and not each.doomed(found)]
                left = fit if len(fit) < len(left) else []
        return lost

    async def _name(self, ready: Sequence[_Ready], closing: bool) -> Mapping[str, Entry | None] | None:
        """One commit for all of them: None, or what was found instead of what was required."""
        named = [(each, each.partition.record_after(each.segment.end_offset, closing=closing)) for each in ready]
        self._step("before the commit")
        try:
            outcome = await commit_surely(
                self._store,
                clock=self._clock,
                chance=self._chance,
                require=list(dict.fromkeys(requirement for each in ready for requirement in each.require())),
                apply=[operation for each, record in named for operation in each.apply(record)],
            )
        except OutcomeUnknownError as lost:
            for each, record in named:
                each.partition.keeper.doubt(lost, record, each.segment)
            raise
        if isinstance(outcome, Conflict):
            return outcome.found
        self._step("segment committed")
        for each, record in named:
            each.partition.keeper.took(record, outcome.version)
            each.partition.was_published(each.segment)
        self._step("segment released")
        return None

    async def _give_back(self, partitions: Sequence[LeadingPartition]) -> list[LeadingPartition]:
        """Lower the reservation of partitions with nothing left to publish."""
        lost = []
        for partition in partitions:
            try:
                if await give_back(partition):
                    self._step("reservation given back")
            except FencedError:
                lost.append(partition)
        return lost


async def give_back(partition: LeadingPartition) -> bool:
    """Lower the reservation to what was handed out, if all of that is published: the partition is clean then."""
    async with partition.quiet(), partition.record_lock:
        await partition.settle_record()
        record = partition.record
        if not record.reserved > record.published == partition.next_offset:
            return False
        await partition.change_record(msgspec.structs.replace(record, reserved=record.published))
        return True


def _named(partition: LeadingPartition, meta: SegmentMeta, key: str, start: int, end: int) -> SegmentRecord:
    return SegmentRecord(
        base_offset=meta.base_offset,
        end_offset=meta.end_offset,
        object=key,
        start=start,
        end=end,
        epoch=partition.lease.epoch,
        records=meta.record_count,
        min_timestamp_ms=meta.min_timestamp_ms,
        max_timestamp_ms=meta.max_timestamp_ms,
    )
