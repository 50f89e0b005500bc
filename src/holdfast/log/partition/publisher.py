"""Publishing: durable batches become segments in object storage, listed by one fenced commit.

Body first, index second: a crash in between leaves an orphan object, which the sweeper removes; the other order would leave a
reference to nothing. A failed upload changes nothing: the tail and the WAL keep what they have until it is committed as
published. Partitions that are due together go together: small ones share an object, all share commits. What has grown to several
segments meanwhile becomes so many, built and uploaded concurrently, and committed together.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.objects import Buffer, Objects
from holdfast.contracts.store import Absent, Conflict, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.keys import epoch_key
from holdfast.log.append_traces import AppendTraces
from holdfast.log.keys import deletion_mark_key, segment_entry_key
from holdfast.log.metadata import PartitionRecord, SegmentRecord
from holdfast.log.partition.cancellation import run_to_completion
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.tail import TailPiece
from holdfast.log.segments import (
    BuiltSegment,
    ProducerSection,
    build_object,
    build_segment,
    segment_key,
    shared_key,
)
from holdfast.log.settings import LogSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.tasks import gather_limited, gather_or_cancel

_OPERATIONS_PER_PARTITION = 3  # fence, record; record
_OPERATIONS_PER_SEGMENT = 2  # deletion mark; segment
_SEGMENTS_MAX = 8  # of one partition in one publication
_RELEASES_MAX = 256  # concurrent
_READS_MAX = 64  # concurrent
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_BUILDERS_MAX = max(1, _CORES - 1)  # at a time: the loop and the WAL's thread want a core meanwhile
_BUILT_TOGETHER_MAX, _BUILT_TOGETHER_BYTES = 64, 256 * KIB  # small segments, on one thread


@dataclass(frozen=True, slots=True)
class _UploadedSegments:
    """Segments of a partition that are uploaded and not named yet, oldest first."""

    partition: LeadingPartition
    segments: tuple[SegmentRecord, ...]

    @property
    def operations(self) -> int:
        """How many operations of a commit it takes."""
        return _OPERATIONS_PER_PARTITION + _OPERATIONS_PER_SEGMENT * len(self.segments)

    def require(self) -> tuple[Requirement, ...]:
        unmarked = (Absent(deletion_mark_key(each.object)) for each in self.segments)
        return *self.partition.fenced_record.require(), *unmarked

    def apply(self, record: PartitionRecord) -> tuple[Operation, ...]:
        partition_id = self.partition.partition_id
        named = (
            Put(
                segment_entry_key(partition_id.topic_id, partition_id.number, each.base_offset),
                msgspec.json.encode(each),
            )
            for each in self.segments
        )
        return self.partition.fenced_record.put(record), *named

    def lost(self, found: Mapping[str, Entry | None]) -> bool:
        """Whether what was found means that this partition is no longer ours to publish."""
        fenced_record = self.partition.fenced_record
        epoch, state = found.get(epoch_key(self.partition.lease.resource)), found.get(fenced_record.key)
        return (
            epoch is None
            or epoch.version != self.partition.lease.version
            or state is None
            or state.version != fenced_record.version
        )

    def marked_for_deletion(self, found: Mapping[str, Entry | None]) -> bool:
        """Whether a sweeper took an object for an orphan: the upload was too slow, and has to be repeated."""
        return any(found.get(deletion_mark_key(each.object)) is not None for each in self.segments)


_Piece = tuple[LeadingPartition, TailPiece, Callable[[], ProducerSection]]
_Built = tuple[LeadingPartition, BuiltSegment]


class SegmentPublisher:
    """Publishes partitions of one agent."""

    def __init__(
        self,
        *,
        store: Store,
        objects: Objects,
        clock: Clock,
        random: Random,
        settings: LogSettings,
        prefix: str = "",
        traces: AppendTraces | None = None,
    ) -> None:
        """`prefix`: where the owner of the objects writes. `traces`: what uploads are linked to, if that is on."""
        self._traces = traces
        self._store, self._objects, self._clock, self._random = store, objects, clock, random
        self._settings, self._prefix = settings, prefix
        self._building = asyncio.Semaphore(_BUILDERS_MAX)  # of all publications

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        """Publish everything durable of these partitions; the ones that turned out to be lost are returned.

        `closing` also lowers the reservation of those that accept no more to what was handed out: such a partition is clean
        and can move at once. `UnavailableError`, `OutcomeUnknownError`: object storage or the store is away, and nothing was
        lost; try again.
        """
        chosen = sorted(set(partitions), key=lambda each: (each.partition_id.topic_id, each.partition_id.number))
        async with AsyncExitStack() as locks:
            for partition in chosen:
                await locks.enter_async_context(partition.publish_lock)
            for partition in chosen:
                async with partition.record_lock:
                    await partition.resolve_record()
            unpublished = [each for each in chosen if each.unpublished_bytes]
            await gather_limited(LeadingPartition.recover_producers, unpublished, _READS_MAX)
            pieces = [(each, *piece) for each in chosen for piece in _cut_into_segments(each)]
            # No more wait for their turn than are built, so that publications take turns.
            groups = await gather_limited(self._built, _built_together(pieces), _BUILDERS_MAX)
            built = [each for group in groups for each in group]
            failpoints.reached("publish.segments-built")
            ready = await self._upload(built)
            failpoints.reached("publish.segments-uploaded")
            lost: list[LeadingPartition] = []
            # Every chunk comes to its end before the locks are let go, whatever became of the others.
            commits = (self._commit(chunk, closing) for chunk in _chunks(ready))
            outcomes = await asyncio.gather(*commits, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                lost.extend(outcome)
            if closing:
                gone = set(lost)
                lost.extend(await self._release_reservations([each for each in chosen if each not in gone]))
            return lost

    async def _built(self, pieces: Sequence[_Piece]) -> list[_Built]:
        async with self._building:
            return await asyncio.to_thread(_build, pieces)

    async def _upload(self, segments: Sequence[_Built]) -> list[_UploadedSegments]:
        shared_below = self._settings.shared_below_bytes
        small = [each for each in segments if each[1].meta.bytes < shared_below]
        large = [each for each in segments if each[1].meta.bytes >= shared_below]
        uploads = [self._put_alone(*each) for each in (large if len(small) > 1 else segments)]
        if len(small) > 1:
            uploads.append(self._put_shared(small))
        uploaded: dict[LeadingPartition, list[SegmentRecord]] = {}
        for group in await gather_or_cancel(*uploads):
            for partition, segment in group:
                uploaded.setdefault(partition, []).append(segment)
        return [
            _UploadedSegments(partition, tuple(sorted(named, key=lambda each: each.base_offset)))
            for partition, named in uploaded.items()
        ]

    async def _put_alone(
        self, partition: LeadingPartition, built: BuiltSegment
    ) -> list[tuple[LeadingPartition, SegmentRecord]]:
        partition_id, meta = partition.partition_id, built.meta
        key = segment_key(
            partition_id.topic_id,
            partition_id.number,
            meta.base_offset,
            meta.end_offset,
            partition.lease.epoch,
            self._random.token(),
            prefix=self._prefix,
        )
        await self._put_traced(key, built.parts, ((partition, built),))
        return [(partition, _segment_record(partition, built, key, 0, meta.bytes))]

    async def _put_shared(self, segments: Sequence[_Built]) -> list[tuple[LeadingPartition, SegmentRecord]]:
        key = shared_key(self._random.token(), prefix=self._prefix)
        parts, ranges = build_object([built for _, built in segments])
        await self._put_traced(key, parts, segments)
        return [
            (partition, _segment_record(partition, built, key, partition_id.start, partition_id.end))
            for (partition, built), partition_id in zip(segments, ranges, strict=True)
        ]

    async def _put_traced(self, key: str, parts: Sequence[Buffer], segments: Sequence[_Built]) -> None:
        if self._traces is None:
            await self._put(key, parts)
            return
        ranges = ((partition.partition_id, built.meta.end_offset) for partition, built in segments)
        with self._traces.uploading(key, sum(memoryview(part).nbytes for part in parts), ranges):
            await self._put(key, parts)

    async def _put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._objects.put(
            key, parts
        )  # `AlreadyExists` is our own upload, retried: the key holds a fresh upload id

    async def _commit(self, ready: Sequence[_UploadedSegments], closing: bool) -> list[LeadingPartition]:
        """Name what was uploaded. Partitions that were lost meanwhile are left out and returned; the rest is published."""
        lost: list[LeadingPartition] = []
        async with AsyncExitStack() as locks:
            for each in ready:
                await locks.enter_async_context(each.partition.record_lock)
            left = list(ready)
            while left:
                found = await run_to_completion(self._name(left, closing))
                if found is None:
                    break
                gone = [each for each in left if each.lost(found)]
                lost.extend(each.partition for each in gone)
                # What a sweeper has marked for deletion stays in the tail, and the next publication uploads it again.
                fit = [each for each in left if each not in gone and not each.marked_for_deletion(found)]
                left = fit if len(fit) < len(left) else []
        return lost

    async def _name(self, ready: Sequence[_UploadedSegments], closing: bool) -> Mapping[str, Entry | None] | None:
        """One commit for all of them: None, or what was found instead of what was required."""
        named = [(each, each.partition.next_record(each.segments[-1].end_offset, closing=closing)) for each in ready]
        failpoints.reached("publish.before-commit")
        try:
            outcome = await commit_resolved(
                self._store,
                clock=self._clock,
                random=self._random,
                require=list(dict.fromkeys(requirement for each in ready for requirement in each.require())),
                apply=[operation for each, record in named for operation in each.apply(record)],
            )
        except OutcomeUnknownError as lost:
            for each, record in named:
                each.partition.fenced_record.mark_unresolved(lost, record, each.segments)
            raise
        if isinstance(outcome, Conflict):
            return outcome.found
        failpoints.reached("publish.committed")
        for each, record in named:
            each.partition.fenced_record.applied(record, outcome.version)
            each.partition.apply_published(each.segments)
        failpoints.reached("publish.applied")
        return None

    async def _release_reservations(self, partitions: Sequence[LeadingPartition]) -> list[LeadingPartition]:
        """Lower the reservation of partitions with nothing left to publish."""

        async def release(partition: LeadingPartition) -> LeadingPartition | None:
            try:
                if await release_reservation(partition):
                    failpoints.reached("publish.reservation-released")
            except FencedError:
                return partition
            return None

        lost = await gather_limited(release, partitions, _RELEASES_MAX)
        return [each for each in lost if each is not None]


def _built_together(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Small segments several to a thread, because changing threads costs more than they do."""
    groups: list[list[_Piece]] = []
    left_bytes = 0
    for piece in pieces:
        if left_bytes <= 0 or len(groups[-1]) >= _BUILT_TOGETHER_MAX:
            groups.append([])
            left_bytes = _BUILT_TOGETHER_BYTES
        groups[-1].append(piece)
        left_bytes -= piece[1].size_bytes
    return groups


def _build(pieces: Sequence[_Piece]) -> list[_Built]:
    return [
        (
            partition,
            build_segment(
                [entry.data for entry in piece.entries],
                topic_id=partition.partition_id.topic_id,
                partition=partition.partition_id.number,
                epochs=[each for each in partition.record.epochs if each.start_offset <= piece.end_offset],
                producers=producers(),  # here, on the thread: there may be many
            ),
        )
        for partition, piece, producers in pieces
    ]


def _cut_into_segments(partition: LeadingPartition) -> list[tuple[TailPiece, Callable[[], ProducerSection]]]:
    """What is durable and not published, cut into segments, and what makes the producers of each footer.

    Only the last footer has them: the others are never the newest, because one commit lists them all.
    """
    pieces = partition.publishable_pieces(most=_SEGMENTS_MAX)
    if not pieces:
        return []
    producers, since = partition.producer_section(pieces[-1].end_offset)
    nothing = partial(ProducerSection, since=since)
    return [*((piece, nothing) for piece in pieces[:-1]), (pieces[-1], producers)]


def _chunks(ready: Sequence[_UploadedSegments]) -> list[list[_UploadedSegments]]:
    """What one commit can name, each; a partition stays together."""
    chunks: list[list[_UploadedSegments]] = []
    left = 0
    for each in ready:
        if each.operations > left:
            chunks.append([])
            left = StoreLimits().ops_max
        chunks[-1].append(each)
        left -= each.operations
    return chunks


async def release_reservation(partition: LeadingPartition) -> bool:
    """Lower the reservation to what was handed out, if all of that is published: the partition is clean then."""
    async with partition.appends_paused(), partition.record_lock:
        await partition.resolve_record()
        record = partition.record
        if not record.reserved > record.published == partition.next_offset:
            return False
        await partition.change_record(msgspec.structs.replace(record, reserved=record.published))
        return True


def _segment_record(partition: LeadingPartition, built: BuiltSegment, key: str, start: int, end: int) -> SegmentRecord:
    meta = built.meta
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
        producers_since=built.producers_since,
    )
