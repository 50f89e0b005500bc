"""Opening a partition under a new lease: what the store says, what our WAL still holds, and where the next offset is.

Rules (SAFETY 7–9): a tail that may exist in somebody else's WAL keeps the partition offline, unless the topic allows an unclean
takeover, which starts at the reserved ceiling so that no offset is handed out twice. A recovered tail was fsynced by the WAL when
it was opened, before anything here serves it.
"""

from collections.abc import AsyncIterator, Callable

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Absent, AtVersion, Conflict, Entry, Put, Requirement, Store
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.log.keys import deleted_key, state_key
from holdfast.log.leader_epochs import epoch_at, with_epoch
from holdfast.log.metadata import OffsetGap, PartitionRecord
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.fenced_record import FencedRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.producer_state import ProducerStates
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.tail import Tail, TailBatch
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.segment_list import SegmentList, load_segments
from holdfast.log.segments import SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.log.wal import DATA, Wal, WalFrame
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, HoldfastError, UnavailableError
from holdfast.vocabulary.random import Random

# The frames that are left of a partition (topic id, number), oldest first; those of the WAL, unless the caller knows of more.
FrameSource = Callable[[bytes, int], AsyncIterator[WalFrame]]


class TailNotLocalError(HoldfastError):
    """The partition's last records may be in another agent's WAL. Bring that agent back, or allow an unclean takeover."""

    def __init__(self, partition: str, wal: str, published: int, reserved: int) -> None:
        super().__init__(partition, wal, published, reserved)
        self.partition, self.wal, self.published, self.reserved = partition, wal, published, reserved

    def __str__(self) -> str:
        return (
            f"partition {self.partition} is offline: records between offsets {self.published} and {self.reserved} may be in WAL "
            f"{self.wal}, which is not here; start the agent that has it, or set unclean_takeover on the topic"
        )


async def open_partition(
    partition_id: PartitionId,
    *,
    lease: Lease,
    session: HeldSession,
    store: Store,
    objects: Objects,
    wal: Wal,
    wal_id: str,
    clock: Clock,
    random: Random,
    settings: LogSettings,
    partition_config: PartitionConfig | None = None,
    leftovers: FrameSource | None = None,
    dirty_partitions: DirtyPartitions[LeadingPartition] | None = None,
    published_tail_cache: PublishedTailCache | None = None,
    budget: TailBudget | None = None,
    steps: Callable[[str], None] = lambda _: None,
) -> LeadingPartition:
    """Recover and take over. `TailNotLocalError`: it stays offline. `FencedError`: somebody was faster.

    `steps` is called at labelled points, for tests that crash there.
    """
    partition_config = partition_config or PartitionConfig()
    key = state_key(partition_id.topic_id, partition_id.number)
    entry = await store.get(key)
    steps("record read")
    record = PartitionRecord() if entry is None else msgspec.json.decode(entry.value, type=PartitionRecord)
    tail = Tail(record.published)
    if record.clean:
        pass  # there is no tail to look for, wherever it would be
    elif record.wal == wal_id:
        await recover_tail(
            tail, record, (leftovers or wal.recovered.of)(bytes.fromhex(partition_id.topic_id), partition_id.number)
        )
    else:
        record = _skip_tail(partition_id, record, partition_config)
        tail = Tail(record.published)
    steps("tail recovered")
    segments = await load_segments(store, partition_id.topic_id, partition_id.number)
    producers = await _recover_producers(segments, objects, tail, clock.now_ms())
    steps("producers recovered")
    opened = msgspec.structs.replace(
        record,
        wal=wal_id,
        # A tail that was acknowledged as `local` stays visible, and stays precious, until it is published.
        level="local" if tail.size_bytes and record.level == "local" else partition_config.level,
        reserved=tail.end,
        epochs=with_epoch(record.epochs, lease.epoch, tail.end),
    )
    version = await _commit_takeover(store, partition_id, lease, entry, opened, clock=clock, random=random)
    steps("partition taken")
    return LeadingPartition(
        partition_id,
        lease=lease,
        session=session,
        wal=wal,
        clock=clock,
        settings=settings,
        partition_config=partition_config,
        fenced_record=FencedRecord(partition_id, lease, opened, version, store=store, clock=clock, random=random),
        segments=segments,
        producers=producers,
        tail=tail,
        dirty_partitions=dirty_partitions or DirtyPartitions(),
        published_tail_cache=published_tail_cache or PublishedTailCache(0),
        budget=budget,
    )


def _skip_tail(
    partition_id: PartitionId, record: PartitionRecord, partition_config: PartitionConfig
) -> PartitionRecord:
    """Go on at the ceiling, without a tail that is in another WAL: where it was never acknowledged, or may be missed."""
    if record.level == "object":
        return msgspec.structs.replace(record, published=record.reserved)
    if not partition_config.unclean_takeover:
        raise TailNotLocalError(str(partition_id), record.wal, record.published, record.reserved)
    gap = OffsetGap(start=record.published, end=record.reserved, wal=record.wal)
    return msgspec.structs.replace(record, published=record.reserved, gaps=(*record.gaps, gap))


async def recover_tail(tail: Tail, record: PartitionRecord, frames: AsyncIterator[WalFrame]) -> None:
    """Put back on the tail what follows on from it, in the order it was written.

    A batch that does not follow belongs to something that was published, or to an append that failed and was taken back; one
    whose epoch was not in charge of its offset belongs to a lost leadership. Neither was ever acknowledged from here on.
    """
    async for frame in frames:
        if frame.kind != DATA or frame.end_offset <= tail.end:
            continue
        for part in frame.payload:
            for header, data in split_batches(part, limits=RecordBatchLimits(), stored=True):
                in_charge = header.leader_epoch == epoch_at(record.epochs, header.base_offset)
                if header.base_offset == tail.end and in_charge:
                    tail.append(TailBatch(header.base_offset, header.last_offset + 1, data, header))


async def _recover_producers(segments: SegmentList, objects: Objects, tail: Tail, now_ms: int) -> ProducerStates:
    """From the newest footer, then what the tail adds."""
    producers = ProducerStates()
    newest = segments.recent[-1] if segments.recent else None
    if newest is not None:
        reader = SegmentReader(objects, newest.object, newest.start, newest.end)
        snapshots = await reader.producers()
        if isinstance(snapshots, Missing):
            raise CorruptError(f"object {newest.object}", "it is named by the store and is not there")
        producers = ProducerStates(snapshots)
    for batch in tail.between(tail.start, tail.end):
        # Seen now, not when its records say: a producer may write any time into them, and must not be forgotten for it.
        producers.append(batch.header, batch.base_offset, now_ms)
    producers.settle(tail.end)
    return producers


async def _commit_takeover(
    store: Store,
    partition_id: PartitionId,
    lease: Lease,
    entry: Entry | None,
    record: PartitionRecord,
    *,
    clock: Clock,
    random: Random,
) -> int:
    key = state_key(partition_id.topic_id, partition_id.number)
    unmoved: Requirement = Absent(key) if entry is None else AtVersion(key, entry.version)
    outcome = await commit_fenced(
        store,
        lease,
        clock=clock,
        random=random,
        require=(unmoved, Absent(deleted_key(partition_id.topic_id))),  # an agent may hear late that the topic is gone
        apply=(Put(key, msgspec.json.encode(record)),),
    )
    if isinstance(outcome, Conflict):
        if outcome.found.get(deleted_key(partition_id.topic_id)) is not None:
            raise ClosedError(f"partition {partition_id}, whose topic was deleted,")
        # The lease is ours, so it was an earlier try of our own, whose answer was lost.
        raise UnavailableError(f"partition {partition_id}", "its record changed while it was opened")
    return outcome.version
